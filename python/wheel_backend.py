"""Builds the wheel of kvfate for `pip wheel` and `pip install` (PEP 517), with Meson and the standard library alone.

The wheel holds a whole installation in kvfate/bin, lib and share, with the libraries that the program is linked to, all but the C library:
program and libraries find each other by paths relative to themselves.  Neither meson-python nor auditwheel is used, because a wheel can then be
built where no index of packages is reachable, and because the program, unlike an extension module, works for every Python 3.

A setting `build` (pip: --config-settings=build=FOLDER) keeps the folder of the build, so that the next wheel is made soon."""
import base64
import hashlib
import os
import platform
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SETTINGS = ["--buildtype=release", "--strip", "--prefix=/kvfate", "--libdir=lib", "-Dtests=disabled", "-Dcuda=disabled", "-Dmpi=disabled",
            # A search path of the old kind holds for the libraries of libraries, too.
            "-Dc_link_args=-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"]
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux[-\w]*|libc|libm|libdl|librt|libpthread|libresolv)\.so")
DATE = (1980, 1, 1, 0, 0, 0)  # the least that a zip file holds, so that equal files make equal wheels


def version():
    with open(os.path.join(ROOT, "meson.build")) as f:
        return re.search(r"version: '([^']+)'", f.read()).group(1)


def tag():
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")  # this machine's, or one that is later
    return "py3-none-manylinux_%s_%s" % (libc, platform.machine())


def compiled(settings, into):
    """Builds the program and installs it into the folder `into`; returns the prefix there."""
    # pip hides the modules of the system from what it starts by PYTHONPATH; Meson is one of them.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def do(*argv):
        subprocess.run(argv, check=True, stdout=sys.stderr, env=env)

    build = (settings or {}).get("build") or os.path.join(into, "build")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        do("meson", "setup", build, ROOT, *SETTINGS)
    do("ninja", "-C", build)
    do("meson", "install", "-C", build, "--no-rebuild", "--destdir", os.path.join(into, "image"))
    return os.path.join(into, "image", "kvfate")


def libraries(path):
    """What the dynamic loader finds for a program or library: {name: path}, without the C library's own."""
    said = subprocess.run(["ldd", path], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    if "not found" in said:
        raise SystemExit("kvfate: a library of %s is missing:\n%s" % (path, said))
    found = re.findall(r"^\s*(\S+) => (\S+) \(", said, re.M)
    return {name: at for name, at in found if not OF_THE_SYSTEM.match(name)}


def contents(prefix):
    """The files of the wheel: {name there: path here}."""
    program = os.path.join(prefix, "bin", "kvfate")
    trace = os.path.join(prefix, "lib", "libkvftrace.so.0")
    files = {"kvfate/bin/kvfate": program, "kvfate/lib/libkvftrace.so.0": trace}
    for name, at in {**libraries(program), **libraries(trace)}.items():
        files["kvfate/lib/" + name] = at
    gates = os.path.join(prefix, "share", "kvfate", "gates")
    for name in os.listdir(gates):
        files["kvfate/share/kvfate/gates/" + name] = os.path.join(gates, name)
    for section in ("man1", "man5"):
        pages = os.path.join(prefix, "share", "man", section)
        for name in os.listdir(pages):
            files["kvfate-%s.data/data/share/man/%s/%s" % (version(), section, name)] = os.path.join(pages, name)
    files["kvfate/claims.toml"] = os.path.join(ROOT, "docs", "studies", "claims.toml")
    for folder, _, names in os.walk(os.path.join(HERE, "kvfate")):
        for name in names:
            if name.endswith((".py", ".pyi", ".sh", "py.typed")):
                at = os.path.join(folder, name)
                files[os.path.relpath(at, HERE)] = at
    return files


def described():
    """The texts of the folder .dist-info; project data as pyproject.toml has them."""
    with open(os.path.join(HERE, "pyproject.toml")) as f:
        project = f.read()
    word = lambda key: re.search(r'^%s = "([^"]*)"' % key, project, re.M).group(1)  # noqa: E731
    with open(os.path.join(HERE, "README.md")) as f:
        readme = f.read()
    metadata = ["Metadata-Version: 2.1", "Name: kvfate", "Version: " + version(), "Summary: " + word("description"), "License: MIT",
                "Requires-Python: " + word("requires-python"), "Requires-Dist: numpy", "Provides-Extra: tables",
                'Requires-Dist: pandas; extra == "tables"', "Provides-Extra: claims", 'Requires-Dist: scipy; extra == "claims"', "Description-Content-Type: text/markdown", "", readme]
    return {"METADATA": "\n".join(metadata), "entry_points.txt": "[console_scripts]\nkvfate = %s\n" % re.search(r'^kvfate = "(.*)"', project, re.M).group(1),
            "WHEEL": "Wheel-Version: 1.0\nGenerator: kvfate\nRoot-Is-Purelib: false\nTag: %s\n" % tag()}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = "kvfate-%s.dist-info" % version()
    os.mkdir(os.path.join(metadata_directory, info))
    for name, text in described().items():
        with open(os.path.join(metadata_directory, info, name), "w") as f:
            f.write(text)
    return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = "kvfate-%s.dist-info/" % version()
    name = "kvfate-%s-%s.whl" % (version(), tag())
    record = []
    with tempfile.TemporaryDirectory() as into, zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name, data, mode=0o644):
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr, entry.compress_type = (stat.S_IFREG | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

        for there, here in sorted(contents(compiled(config_settings, into)).items()):
            with open(here, "rb") as f:
                add(there, f.read(), 0o755 if "/bin/" in there else 0o644)
        for there, text in described().items():
            add(info + there, text.encode())
        wheel.writestr(zipfile.ZipInfo(info + "RECORD", DATE), "\n".join(record + [info + "RECORD,,", ""]))
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("kvfate: a wheel is built from the whole repository; there is no archive of python/ alone")
