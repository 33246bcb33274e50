import shutil
import subprocess

import pytest

from hypersphere.cli import main as cli


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_knows_every_command(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in cli.COMMANDS)
    assert "--fpir" in script


def test_bash_completes_a_command(capsys, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    cli.main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    function = "_shtab_hypersphere"
    ask = f'source {tmp_path}/script; COMP_WORDS=(hypersphere gal); COMP_CWORD=1; {function}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run([bash, "-c", ask], capture_output=True, text=True, check=False)
    assert "gallery" in done.stdout, done.stderr


def test_refuses_an_unknown_shell(capsys):
    with pytest.raises(SystemExit):
        cli.main(["completion", "ed"])
    assert "invalid choice: 'ed'" in capsys.readouterr().err
