"""The distribution is the folders that are here, under one name, and its front door is light."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NOT_SOURCE = {"tests", "docs", "build", "dist"}
HEAVY = {"apsw", "click", "eventsourcing", "msgspec", "rich"}


def _packages() -> set[str]:
    """The folders of the checkout that are packages, under the names that they are installed by."""
    folders = {each.parent.relative_to(ROOT) for each in ROOT.glob("*/**/__init__.py")}
    sources = {
        folder
        for folder in folders
        if not NOT_SOURCE & set(folder.parts) and not any(p.startswith(".") for p in folder.parts)
    }
    return {"retold"} | {".".join(("retold", *folder.parts)) for folder in sources}


def _modules() -> list[str]:
    paths = {name: ROOT.joinpath(*name.split(".")[1:]) for name in _packages()}
    modules = {f"{name}.{file.stem}" for name, path in paths.items() for file in path.glob("*.py")}
    return sorted(each.removesuffix(".__init__") for each in modules)


def _beside_modules() -> set[str]:
    """What stands in a package's folder and is no module: the program reads it when it runs."""
    folders = {name: ROOT.joinpath(*name.split(".")[1:]) for name in _packages() - {"retold"}}
    return {
        f"{name.replace('.', '/')}/{file.name}"
        for name, folder in folders.items()
        for file in folder.iterdir()
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }


def test_the_package_list_is_the_folders() -> None:
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == _packages()


def test_the_link_by_which_tools_find_the_package_is_here() -> None:
    link = ROOT / ".import" / "retold"

    assert link.is_symlink()
    assert os.readlink(link) == ".."


@pytest.mark.parametrize("module", _modules())
def test_every_module_can_be_imported(module: str) -> None:
    assert import_module(module).__doc__, "a module opens with what it is for"


def test_there_is_one_version() -> None:
    import retold

    assert PYPROJECT["project"]["version"] == retold.__version__


def test_the_front_door_offers_what_it_names() -> None:
    import retold

    offered = {name: getattr(retold, name) for name in retold.__all__}

    assert set(offered) >= {"Message", "RetoldError", "SessionEngine", "SessionSource", "Update", "open_home"}
    assert set(dir(retold)) == set(offered)
    assert sorted(retold.__all__) == retold.__all__


def test_an_unknown_name_at_the_front_door_is_an_attribute_error() -> None:
    import retold

    with pytest.raises(AttributeError, match="'retold' has no attribute 'nothing'"):
        retold.nothing  # noqa: B018 # that it is missing is the test


def _import_retold(*flags: str, then: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", f"import retold; {then}"],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".import")},
        capture_output=True,
        text=True,
        check=True,
    )


def test_importing_it_takes_under_five_milliseconds() -> None:
    def once_us() -> int:
        lines = _import_retold("-X", "importtime").stderr.splitlines()
        [line] = [each for each in lines if each.split("|")[-1].strip() == "retold"]
        return int(line.split("|")[1])

    # The best of a few: the machine may be busy with other tests, and the first writes bytecode.
    assert min(once_us() for _ in range(5)) < 5_000


def test_importing_it_imports_nothing_heavy() -> None:
    loaded = _import_retold(then="import sys; print(*sys.modules)").stdout.split()

    assert not HEAVY & {name.split(".")[0] for name in loaded}


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    # From a copy: building leaves folders beside the source.
    passed_over = shutil.ignore_patterns(".*", "tests", "docs", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tmp_path / "source", ignore=passed_over)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(tmp_path / "source")], capture_output=True, check=True)
    [wheel] = tmp_path.glob("retold-*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {f"{each.replace('.', '/')}.py" for each in _modules()} - {
        f"{each.replace('.', '/')}.py" for each in _packages()
    }
    expected |= {f"{each.replace('.', '/')}/__init__.py" for each in _packages()}

    assert names == expected | _beside_modules() | {"retold/py.typed"}
