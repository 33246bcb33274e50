import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
LINE = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def read_lines():
    text = (ROOT / "tools" / "service_requirements.txt").read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def read_pins(path):
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", path.read_text(), re.M)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in pins}


def test_every_line_has_a_version_and_a_hash():
    lines = read_lines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0])


def test_the_versions_are_the_tested_ones():
    pins = read_pins(ROOT / "constraints.txt")
    versions = {
        name: version.partition("+")[0] for name, version, _ in (LINE.fullmatch(line).groups() for line in read_lines())
    }
    assert {"torch", "fastapi", "uvicorn", "onnx", "psycopg", "cryptography"} <= set(versions) & set(pins)
    assert {name: pins[name] for name in versions if name in pins} == {
        name: versions[name] for name in versions if name in pins
    }


def test_the_lines_of_a_resolution():
    spec = importlib.util.spec_from_file_location("lock_service", ROOT / "tools" / "lock_service.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.format_lines([("a-b", "1.0", "0" * 64), ("c", "2", "f" * 64)])
    assert text.splitlines()[-2:] == ["a-b==1.0 --hash=sha256:" + "0" * 64, "c==2 --hash=sha256:" + "f" * 64]


def test_the_image_installs_them():
    docker = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in docker
    assert "tools/service_requirements.txt" in docker
