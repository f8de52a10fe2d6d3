"""Builds the wheel of kvfate for `pip wheel` and `pip install` (PEP 517), with Meson and the standard library alone.

The wheel holds a whole installation in kvfate/bin, lib and share: the program, the libraries that it loads (all but the C library), their licences,
fonts and gates.  Program and libraries find each other by paths relative to themselves.  Nothing is fetched to build.  Only Debian and
its relatives say which licence a file of the system has; elsewhere the wheel has no texts of licences, and is for the machine that built it.

With patchelf on PATH each library also gets a search path of its own, which auditwheel needs to follow them (tools/release.py).

A setting `build` (pip: --config-settings=build=FOLDER) keeps the folder of the build, so that the next wheel is made soon."""
import base64
import glob
import hashlib
import os
import platform
import re
import shutil
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
# What the build needs: (how it is found, its package in Debian and Ubuntu, its package in Fedora).  A name of pkg-config, a program or a font.
NEEDED = (
    ("cc", "gcc", "gcc"), ("meson", "meson", "meson"), ("ninja", "ninja-build", "ninja-build"), ("pkg-config", "pkg-config", "pkgconf-pkg-config"),
    ("cairo-pdf.pc", "libcairo2-dev", "cairo-devel"), ("pangocairo.pc", "libpango1.0-dev", "pango-devel"), ("harfbuzz-subset.pc", "libharfbuzz-dev", "harfbuzz-devel"),
    ("libpng.pc", "libpng-dev", "libpng-devel"), ("zlib.pc", "zlib1g-dev", "zlib-devel"), ("libcjson.pc", "libcjson-dev", "cjson-devel"),
    ("libzstd.pc", "libzstd-dev", "libzstd-devel"), ("minizip.pc", "libminizip-dev", "minizip-ng-compat-devel"), ("sqlite3.pc", "libsqlite3-dev", "sqlite-devel"),
    ("libxxhash.pc", "libxxhash-dev", "xxhash-devel"), ("libpcre2-8.pc", "libpcre2-dev", "pcre2-devel"), ("libutf8proc.pc", "libutf8proc-dev", "utf8proc-devel"),
    ("Lato-Regular.ttf", "fonts-lato", "lato-fonts"), ("Lato-Bold.ttf", "fonts-lato", "lato-fonts"),
    ("DejaVuSans.ttf", "fonts-dejavu-core", "dejavu-sans-fonts"), ("DejaVuSans-Bold.ttf", "fonts-dejavu-core", "dejavu-sans-fonts"),
    ("DejaVuSansMono.ttf", "fonts-dejavu-core", "dejavu-sans-mono-fonts"))
# Fonts of Chinese, Japanese, Korean and emoji, of 30 MB: packed where the machine has them.
OPTIONAL_FONTS = ("NotoSansCJK-Regular.ttc", "NotoColorEmoji.ttf")
LAPACK = "liblapack.so.3"  # loaded by name, for one command (analyzers/lapack.c)
DATE = (1980, 1, 1, 0, 0, 0)  # the least that a zip file holds, so that equal files make equal wheels


def version():
    with open(os.path.join(ROOT, "meson.build")) as f:
        return re.search(r"version: '([^']+)'", f.read()).group(1)


def tag():
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")  # this machine's, or one that is later
    return "py3-none-manylinux_%s_%s" % (libc, platform.machine())


def font(name):
    """The path of a font file of the system, or None."""
    return next(iter(sorted(glob.glob("/usr/share/fonts/**/" + name, recursive=True))), None)


def check_needed():
    """Ends with one sentence if anything that the build needs is missing."""
    def there(name):
        if name.endswith(".pc"):  # without pkg-config only that is reported
            return not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", name[:-3]]).returncode == 0
        return font(name) if name.endswith(".ttf") else shutil.which(name)
    fedora = shutil.which("dnf") is not None
    packages = sorted({row[1 + fedora] for row in NEEDED if not there(row[0])})
    if packages:
        raise SystemExit("kvfate: the build needs packages of the system that are missing; install them, then try again: sudo %s %s"
                         % ("dnf install" if fedora else "apt-get install", " ".join(packages)))


def compiled(settings, into):
    """Builds the program and installs it into the folder `into`; returns the prefix there."""
    # pip hides the modules of the system from what it starts by PYTHONPATH; Meson is one of them.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def do(*argv):
        subprocess.run(argv, check=True, stdout=sys.stderr, env=env)

    check_needed()
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


def lapack():
    """The path of LAPACK of the system, or None."""
    said = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    found = re.search(r"^\s*%s \(.*=> (\S+)" % re.escape(LAPACK), said, re.M)
    return found.group(1) if found else None


def licences(paths):
    """The licences of files of the system, with the texts that they name: {name: path}, and the files of which Debian's dpkg knows none."""
    files, unknown = {}, []
    for path in paths:
        # A link of /lib to /usr/lib, and links of alternatives, have names that dpkg does not know.
        at = os.path.realpath(path)
        owner = None
        for name in (path, at, re.sub("^/usr", "", at)):
            said = subprocess.run(["dpkg-query", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True) if shutil.which("dpkg-query") else None
            if said and said.returncode == 0:
                owner = said.stdout.split(":")[0]
                break
        text = "/usr/share/doc/%s/copyright" % owner
        if not owner or not os.path.exists(text):
            unknown.append(path)
            continue
        files["%s.txt" % owner] = text
        with open(text, encoding="utf-8", errors="replace") as f:
            for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", f.read()):
                if os.path.exists("/usr/share/common-licenses/" + name):
                    files["common/%s.txt" % name] = "/usr/share/common-licenses/" + name
    return files, unknown


def contents(prefix):
    """The files of the wheel: {name there: path here}."""
    program = os.path.join(prefix, "bin", "kvfate")
    trace = os.path.join(prefix, "lib", "libkvftrace.so.0")
    files = {"kvfate/bin/kvfate": program, "kvfate/lib/libkvftrace.so.0": trace}
    packed = {**libraries(program), **libraries(trace)}
    if lapack():
        packed.update({LAPACK: lapack(), **libraries(lapack())})
    else:
        print("kvfate: without %s (package liblapack3) the command dynamics of this wheel needs that of the system" % LAPACK, file=sys.stderr)
    fonts = [font(name) for name in sorted({row[0] for row in NEEDED if row[0].endswith(".ttf")} | set(OPTIONAL_FONTS)) if font(name)]
    for name, at in packed.items():
        files["kvfate/lib/" + name] = at
    for at in fonts:
        files["kvfate/share/kvfate/fonts/" + os.path.basename(at)] = at
    files["kvfate/share/kvfate/fonts/fonts.conf"] = os.path.join(HERE, "fonts.conf")
    texts, unknown = licences([*packed.values(), *fonts])
    for name, at in texts.items():
        files["kvfate/share/licenses/" + name] = at
    if unknown:
        print("kvfate: do not publish this wheel: the licences of these files were not found: " + " ".join(unknown), file=sys.stderr)
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


def readable(there, here, into):
    """The bytes of a file of the wheel; a library of the system gets the search path $ORIGIN."""
    if there.startswith("kvfate/lib/") and shutil.which("patchelf"):
        here = shutil.copy(here, os.path.join(into, "library"))
        os.chmod(here, 0o644)
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", here], check=True)
    with open(here, "rb") as f:
        return f.read()


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
            add(there, readable(there, here, into), 0o755 if "/bin/" in there else 0o644)
        for there, text in described().items():
            add(info + there, text.encode())
        with open(os.path.join(ROOT, "LICENSE"), "rb") as f:
            add(info + "LICENSE", f.read())
        wheel.writestr(zipfile.ZipInfo(info + "RECORD", DATE), "\n".join(record + [info + "RECORD,,", ""]))
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("kvfate: a wheel is built from the whole repository; there is no archive of python/ alone")
