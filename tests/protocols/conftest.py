"""Playing the toy setting is a fixture here."""

from tests.support.playing import play as play
