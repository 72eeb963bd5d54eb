"""What may go wrong in a simulated fleet, and how often."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Probabilities of calls and messages, mean seconds between what befalls machines; 0 is never."""

    until: float = 3000.0
    """When all faults end; then the fleet must come to its end."""
    call_lost: float = 0.01
    reply_lost: float = 0.01
    slow: float = 0.01
    timeout: float = 5.0
    """Seconds until a lost call or reply is noticed."""
    message_lost: float = 0.005
    message_doubled: float = 0.02
    message_late: float = 0.02
    forged: float = 0.002
    """A worker that says it completed what it never ran."""
    kill: float = 3600.0
    """Mean seconds between kills of a worker's machine, half of them announced two minutes before."""
    cut: float = 3600.0
    pause: float = 7200.0
    longest: float = 600.0
    """Seconds of a cut or a pause at most."""
    boot_lost: float = 0.05
    """Machines that never become workers."""
    no_capacity: float = 0.1
    stale: float = 0.3
    """Lists of machines that are half a minute old."""
    crash: float = 300.0
    """Mean seconds between crashes of the controller."""
    down: float = 400.0
    """Seconds that it is down at most."""
    full: float = 1000.0
    """Mean seconds between times in which the controller's disk is full."""
    cut_controller: float = 1500.0
    rival: float = 0.3
    """Whether a second controller is started."""
    retry: float = 0.3
    """Whether the user asks that what failed be tried anew, during the run or after the seal."""


NONE = Faults(
    until=0.0,
    kill=0,
    cut=0,
    pause=0,
    crash=0,
    full=0,
    cut_controller=0,
    rival=0.0,
    retry=0.0,
    boot_lost=0.0,
    no_capacity=0.0,
)
