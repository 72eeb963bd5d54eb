"""Compose files as read without Docker, and as changed for Docker."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from control_tower.errors import ValidationError
from control_tower.sandbox.compose import Healthcheck, interpolate, read_compose, sample_variables
from control_tower.sandbox.transforms import for_docker, images_needed

FULL = """
x-control-tower: {bwrap: true}
x-limits: &limits {mem_limit: 1.5g, pids_limit: 64}
services:
  web:
    <<: *limits
    command: python3 "web server.py" --port 80
    environment: [MODE=on, "PORT=${PORT:-80}"]
    depends_on: {db: {condition: service_healthy}}
    healthcheck: {test: curl -f localhost, interval: 1m30s, timeout: 500ms, retries: 2, start_period: 2s}
    networks: [front]
  default:
    build: .
    working_dir: /app/
    environment: {NAME: "${SAMPLE_METADATA_USER_NAME}", COUNT: 3, FLAG: true, PRICE: "$$5"}
    networks: {front: {}}
    x-control-tower: {copy: {src: /app, ../shared: /usr/share/data}, disk: 64m}
  db:
    entrypoint: [run]
    command: [db]
    network_mode: none
    deploy: {resources: {limits: {memory: 256M, pids: 9}}}
networks: {front: {internal: true}}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "compose.yaml"
    file.write_text(text)
    return file


def test_a_compose_file_becomes_services_in_the_order_they_start(tmp_path: Path) -> None:
    compose = read_compose(write(tmp_path, FULL), sample_variables({"user name": "ada"}))
    services = {service.name: service for service in compose.services}
    assert [*services] == ["default", "db", "web"]
    default, web, db = services["default"], services["web"], services["db"]
    assert default.working_dir == "/app" and default.command is None
    assert default.environment == {"NAME": "ada", "COUNT": "3", "FLAG": "true", "PRICE": "$5"}
    assert default.copies == (
        ((tmp_path / "src").resolve(), "/app"),
        ((tmp_path / "../shared").resolve(), "/usr/share/data"),
    )
    assert default.disk_limit == 64 << 20 and default.mem_limit is None
    assert web.command == ("python3", "web server.py", "--port", "80")
    assert web.environment == {"MODE": "on", "PORT": "80"}
    assert (web.mem_limit, web.pids_limit) == (3 << 29, 64)
    assert web.healthcheck == Healthcheck(("/bin/sh", "-c", "curl -f localhost"), 90.0, 0.5, 2, 2.0)
    assert web.healthcheck.patience == 2 + 2 * 90.5
    assert db.command == ("run", "db") and db.network is None
    assert (db.mem_limit, db.pids_limit) == (256 << 20, 9)
    assert sorted(compose.neighbours(web)) == ["default", "web"] and compose.neighbours(db) == ["db"]


@pytest.mark.parametrize(
    ("service", "complaint"),
    [
        ("volumes: ['/:/host']", "services.default.volumes needs Docker"),
        ("privileged: true", "services.default.privileged needs Docker"),
        ("ports: ['80:80']", "services.default.ports needs Docker"),
        ("user: nobody", "services.default.user other than root needs Docker"),
        ("network_mode: host", "services.default.network_mode other than none needs Docker"),
        ("networks: [a, b]", "services.default.networks with more than one network needs Docker"),
        ("environment: [SECRET]", "environment.SECRET has no value"),
        ("working_dir: app", "working_dir must be an absolute path, not app"),
        ("mem_limit: much", "mem_limit must be a size like 512m, not much"),
        ("healthcheck: {test: [curl]}", "healthcheck.test must start with CMD or CMD-SHELL"),
        ("healthcheck: {test: x, interval: soon}", "interval must be a duration like 1m30s, not soon"),
        ("depends_on: [nobody]", "depend on unknown services: nobody"),
        ("depends_on: [default]", "depend on each other in a circle"),
        ("environment: {A: '${UNSET_HERE:?say who}'}", "variable UNSET_HERE must be set: say who"),
        ("x-control-tower: {copy: {src: ../app}}", "copy must be an absolute path, not ../app"),
    ],
)
def test_what_only_docker_can_do_is_refused_by_name(tmp_path: Path, service: str, complaint: str) -> None:
    file = write(tmp_path, f"x-control-tower: {{bwrap: true}}\nservices:\n  default: {{{service}}}\n")
    with pytest.raises(ValidationError) as refused:
        read_compose(file)
    assert complaint in str(refused.value) and str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("services: {default: {}}", "runs in Docker only"),
        ("x-control-tower: {bwrap: true}\nservices: {web: {}}", "no service `default`"),
        ("x-control-tower: {bwrap: true}\nservices: []", "services must be a mapping"),
        ("{", "is not YAML"),
        ("x-control-tower: {bwrap: true}\nsecrets: {a: {file: b}}\nservices: {default: {}}", "secrets needs"),
    ],
)
def test_files_that_cannot_run_say_why(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        read_compose(write(tmp_path, text))
    with pytest.raises(ValidationError, match="cannot be read"):
        read_compose(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A ${A} $$A", "1 1 $A"),
        ("${B:-x}${B-y}${C:-z}${C-w}", "xzw"),
        ("${A:+yes}${B:+no}${B+set}${C+no}", "yesset"),
        ("${C:-${A:-deep}} ${C:-a b}", "1 a b"),
        ("${C}", ""),
    ],
)
def test_variables_are_filled_in_as_compose_does(text: str, value: str) -> None:
    assert interpolate({"k": [text, 5]}, {"A": "1", "B": ""}, Path("f")) == {"k": [value, 5]}


def changed(text: str, **runtime_vars: str) -> dict[str, Any]:
    return for_docker(yaml.safe_load(text), Path("/env"), runtime_vars)


def test_for_docker_every_network_is_internal_and_paths_are_absolute() -> None:
    compose = changed(
        """
        services:
          default:
            build: {context: ./app, args: {A: 1}}
            env_file: [vars.env, {path: more.env}]
            volumes: ["./data:/data:ro", "named:/n", {type: bind, source: x, target: /x}]
            networks: [run]
          web: {image: nginx, command: serve, environment: [A=1]}
        networks: {run: {}, other: {driver: bridge}}
        volumes: {named: {}}
        secrets: {s: {file: secret.txt}}
        """
    )
    default, web = compose["services"]["default"], compose["services"]["web"]
    assert default["build"] == {"context": "/env/app", "args": {"A": 1}}
    assert default["env_file"] == ["/env/vars.env", {"path": "/env/more.env"}]
    assert default["volumes"] == [
        "/env/data:/data:ro",
        "named:/n",
        {"type": "bind", "source": "/env/x", "target": "/x"},
    ]
    assert compose["secrets"] == {"s": {"file": "/env/secret.txt"}}
    assert all(network["internal"] for network in compose["networks"].values())
    assert set(compose["networks"]) == {"run", "other", "default"}
    assert default["image"].startswith("control-tower-") and web["image"] == "nginx"
    assert default["init"] is True and "command" not in default


def test_for_docker_an_idle_service_waits_and_runtime_variables_reach_default_only() -> None:
    text = (
        "x-control-tower: {bwrap: true}\n"
        "services: {default: {environment: {A: 1}}, web: {command: x, init: false},"
        " list: {environment: [A=1]}}"
    )
    compose = changed(text, TOKEN="a$b", A="2")
    services = compose["services"]
    assert services["default"]["environment"] == {"A": "2", "TOKEN": "a$$b"}
    assert services["default"]["command"] == ["sleep", "infinity"]
    assert services["web"]["command"] == "x" and services["web"]["init"] is False
    assert "environment" not in services["web"] and services["list"]["environment"] == ["A=1"]


@pytest.mark.parametrize(
    "text",
    [
        "services: {default: {network_mode: host}}",
        "services: {default: {network_mode: bridge}}",
        "services: {default: {networks: [n]}}\nnetworks: {n: {external: true}}",
    ],
)
def test_for_docker_ways_out_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        changed(text)


def test_the_source_is_not_changed() -> None:
    content = yaml.safe_load("services: {default: {build: .}}\nsecrets: {s: {file: a}}")
    before = yaml.safe_dump(content)
    for_docker(content, Path("/env"), {"A": "1"})
    assert yaml.safe_dump(content) == before


def test_images_that_must_be_present(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        'ARG BASE="python:3.12"\nARG TAG=1\nFROM --platform=linux/amd64 ${BASE} AS build\nRUN x\n'
        "FROM build AS next\nFROM scratch\nFROM debian:$TAG\n"
    )
    content = yaml.safe_load(
        "services: {a: {build: .}, b: {build: {context: ., args: [BASE=local/x]}}, c: {image: redis},"
        " d: {build: {dockerfile_inline: 'FROM alpine'}, image: mine}}"
    )
    assert images_needed(content, tmp_path) == ["alpine", "debian:1", "local/x", "python:3.12", "redis"]
