#!/usr/bin/env python3
"""Builds the documentation site, a folder of static files, from docs/.

    docs/site/build.py OUT [--kvfate PROGRAM] [--model MODEL]

OUT must not exist, or be empty.  PROGRAM makes the live report (default: build/cli/kvfate, build-release/cli/kvfate, or kvfate on PATH).  MODEL is
a name or a file (default: SmolLM2 in the cache folder, or else stories260K in the cache folder).  `pip install -r
docs/site/requirements.txt` installs the packages that it needs.  A broken link is an error.  docs/site/navigation.toml lists the
sections and pages."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "python")]
import navigation  # noqa: E402
from kvfate import files  # noqa: E402

FRONT = "docs/site/index.md"
CONTENTS = "docs/README.md"
GALLERY = "docs/reference/gallery.md"
LIVE = "live/report.html"
VIEWER = "live/viewer.html"  # opens the visitor's own traces
LIVE_METHODS = ("h2o", "snapkv", "keydiff")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
THUMBNAIL, MARGIN = (480, 320), 12  # pixels: twice the size on the page


def fail(sentence):
    sys.exit("build.py: " + sentence)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def title_of(path):
    return re.search(r"^# (.*)$", read(path), re.M)[1]


def placed(path):
    """Returns the place in the site of a file of the repository, without the suffix of a page."""
    if path == FRONT:
        return "index"
    if path == CONTENTS:
        return "contents"
    if path.startswith("docs/img/"):
        return path.removeprefix("docs/")
    if not path.endswith(".md"):
        return "source/" + path
    path = path.removesuffix(".md")
    return re.sub(r"/README$", "/index", path.removeprefix("docs/")) if path.startswith("docs/") else "project/" + path


class Pages:
    """The prepared pages in a folder.  Pages, sources and pictures to which they link are added until all are there."""

    def __init__(self, folder):
        self.folder, self.done = folder, set()

    def link(self, path, target, place):
        """Returns a link for the page at `place`, from the link `target` of the file `path`."""
        name, hash_, heading = target.partition("#")
        goal = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if "://" in target or not name or not os.path.isfile(os.path.join(ROOT, goal)):
            return target
        self.add(goal)
        to = placed(goal) + ("" if goal.startswith("docs/img/") else ".md")
        return os.path.relpath(to, os.path.dirname(place) or ".") + (hash_ + heading if goal.endswith(".md") else "")

    def text(self, path, place, text):
        """Returns Markdown of the file `path` with links that are correct at `place`."""
        return LINK.sub(lambda m: m[1] + self.link(path, m[2], place) + m[3], text)

    def add(self, path, more=""):
        """Copies a file of the repository.  more: added at the end of a page."""
        if path in self.done:
            return
        self.done.add(path)
        place = placed(path)
        goal = os.path.join(self.folder, place)
        if path.startswith("docs/img/"):
            os.makedirs(os.path.dirname(goal), exist_ok=True)
            shutil.copyfile(os.path.join(ROOT, path), goal)
        elif path.endswith(".md"):
            write(goal + ".md", self.text(path, place, read(path)) + more)
        else:
            write(goal + ".md", source_page(path))


def source_page(path):
    """Returns a page with the text of a source file, which the search does not list."""
    from pygments.lexers import get_lexer_for_filename
    from pygments.util import ClassNotFound
    try:
        language = get_lexer_for_filename(path).aliases[0]
    except ClassNotFound:
        language = "none"
    text = read(path)
    fence = "`" * max([3, *(len(m) + 1 for m in re.findall("`{3,}", text))])
    return f"---\norphan: true\nnosearch: true\n---\n\n# {path}\n\n{fence}{language}\n{text}\n{fence}\n"


def entry(path):
    """Returns the line of a page in the navigation: the title up to a colon, and the page."""
    return f"{title_of(path).split(': ')[0].replace('`', '')} </{placed(path)}>"


def tree(entries, caption=None):
    """Returns a part of the navigation, which the page itself does not show."""
    return "\n```{toctree}\n:hidden:\n" + (f":caption: {caption}\n" if caption else "") + "\n" + "".join(e + "\n" for e in entries) + "```\n"


def descriptions():
    """Returns {page: Markdown of its line in the page of contents}."""
    found = {}
    for item in re.findall(r"^\* (.*(?:\n  .*)*)", read(CONTENTS), re.M):
        link = LINK.search(item)
        if link:
            found.setdefault(os.path.normpath(os.path.join("docs", link[2])), re.sub(r"\n\s*", " ", item))
    return found


def add_section(pages, section, about):
    """Writes the page of a section, with one line for each page, and its part of the navigation."""
    text, trees = f"# {section.title}\n", ""
    for title, listed in section.groups:
        parents = {os.path.dirname(p) for p in listed if p.endswith("/README.md") and p != CONTENTS and p.startswith("docs/")}
        top = [p for p in listed if os.path.dirname(p) not in parents or p.endswith("/README.md")]
        text += (f"\n## {title}\n" if title else "") + "\n"
        for path in top:
            children = [p for p in listed if p not in top and os.path.dirname(p) == os.path.dirname(path)]
            pages.add(path, tree(map(entry, children)) if children else "")
            line = about.get(path) or f"[{title_of(path)}]({os.path.relpath(path, 'docs')})"
            text += "* " + pages.text(CONTENTS, section.page, line) + "\n"
            for child in children:
                pages.add(child)
        trees += tree(map(entry, top), title)
    write(os.path.join(pages.folder, section.page + ".md"), text + trees)


def thumbnail(source, goal):
    """Writes a small picture: the figure without its margins, or its top left part if a small copy of all would be hard to see."""
    from PIL import Image, ImageChops
    picture = Image.open(source).convert("RGB")
    picture = picture.crop(ImageChops.invert(picture).getbbox())
    width, height = THUMBNAIL[0] - 2 * MARGIN, THUMBNAIL[1] - 2 * MARGIN
    fit, cover = sorted((width / picture.width, height / picture.height))
    scale = min(cover, max(fit, 1.6 * width / picture.width))
    part = picture.crop((0, 0, min(picture.width, int(width / scale)), min(picture.height, int(height / scale))))
    small = part.resize((min(width, round(part.width * scale)), min(height, round(part.height * scale))), Image.Resampling.LANCZOS)
    canvas = Image.new("RGB", THUMBNAIL, "white")
    canvas.paste(small, ((THUMBNAIL[0] - small.width) // 2, (THUMBNAIL[1] - small.height) // 2))
    os.makedirs(os.path.dirname(goal), exist_ok=True)
    canvas.save(goal, optimize=True)


def slug(heading):
    """Returns the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def add_gallery(pages, section):
    """Writes the page of thumbnails: one for each heading of the gallery that has a picture."""
    items = []
    for part in re.split(r"^(?=#{2,} )", read(GALLERY), flags=re.M)[1:]:
        heading = re.match(r"#+ (.*)", part)[1]
        picture = re.search(r"!\[([^\]]*)\]\(([^)\s]+)\)", part)
        if picture:
            source = os.path.normpath(os.path.join(ROOT, os.path.dirname(GALLERY), picture[2]))
            name = os.path.basename(os.path.splitext(source)[0]) + ".png"
            thumbnail(source, os.path.join(pages.folder, "img/thumbnails", name))
            items.append(f"* [![{picture[1]}](img/thumbnails/{name}) {heading}](reference/gallery.md#{slug(heading)})\n")
    text = (f"# {section.title}\n\nSelect a figure to see it in full size, with the command that draws it. You can also open a"
            f" <a href=\"{LIVE}\">live report</a>, or <a href=\"{VIEWER}\">your own trace</a>.\n\n<div class=\"thumbnails\">\n\n{''.join(items)}\n</div>\n")
    pages.add(GALLERY)
    write(os.path.join(pages.folder, section.page + ".md"), text + tree([entry(GALLERY)]))


def model_of(option):
    """Returns the model of the live report."""
    from kvfate import model_list, models_get
    if option:
        return option
    cache = models_get.cache()
    for name in (model_list.MODELS[0].file, "stories260K.gguf"):
        if os.path.exists(os.path.join(cache, name)):
            return os.path.join(cache, name)
    return fail(f"the live report needs a model, and {cache} has none: run `kvfate models get {model_list.MODELS[0].name}` or add --model FILE")


def program_of(option):
    """Returns the path of the program that makes the live report."""
    built = [os.path.join(ROOT, folder, "cli/kvfate") for folder in ("build", "build-release")]
    found = next((p for p in ([option] if option else built) if p and shutil.which(p)), None if option else shutil.which("kvfate"))
    return found or fail(f"there is no program {option or 'kvfate'}: build it, or name it with --kvfate")


def make_report(program, model, goal):
    """Runs three methods on one prompt, and writes the page of `kvfate report` about them and the page that opens traces."""
    os.makedirs(os.path.dirname(goal), exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        traces = [os.path.join(work, m + ".kvf") for m in LIVE_METHODS]
        commands = [[program, "run", "-m", model, "-f", os.path.join(ROOT, "examples/demo/camels.txt"), "-n", "96", "--method", method,
                     "--budget", "64", "--shadow", "entries", "-o", trace] for method, trace in zip(LIVE_METHODS, traces)]
        viewer = os.path.join(os.path.dirname(goal), os.path.basename(VIEWER))
        for command in commands + [[program, "report", *traces, "-o", goal], [program, "report", "--viewer", "-o", viewer]]:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                fail(f"`{' '.join(command[:2])}` ended with status {done.returncode}: {done.stderr.strip()}")


def prepare(folder, program, model):
    """Writes the pages, pictures and settings for Sphinx into a folder."""
    pages, about, sections = Pages(folder), descriptions(), navigation.sections(ROOT)
    for section in sections:
        if section.page == "gallery":
            add_gallery(pages, section)
        else:
            add_section(pages, section, about)
    pages.add(FRONT, tree([f"{s.title} <{s.page}>" for s in sections]))
    for name in ("conf.py", "site.css", "site.js", "favicon.svg"):
        goal = os.path.join(folder, name if name == "conf.py" else "_static/" + name)
        os.makedirs(os.path.dirname(goal), exist_ok=True)
        shutil.copyfile(os.path.join(HERE, name), goal)
    make_report(program, model, os.path.join(folder, "_extra", LIVE))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("out")
    parser.add_argument("--kvfate")
    parser.add_argument("--model")
    args = parser.parse_args()
    try:
        import myst_parser, PIL, pydata_sphinx_theme, sphinx  # noqa: E401, F401
    except ImportError as e:
        fail(f"the Python package {e.name} is missing: run `pip install -r docs/site/requirements.txt`")
    reports = navigation.problems(ROOT)
    if reports:
        fail("; ".join(reports))
    program, model = program_of(args.kvfate), model_of(args.model)
    env = {**os.environ, "KVFATE_SITE_VERSION": re.search(r"version: '([^']+)'", read("meson.build"))[1]}
    try:
        with files.folder(args.out) as made, tempfile.TemporaryDirectory() as work:
            pages = os.path.join(work, "pages")
            prepare(pages, program, model)
            sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", os.path.join(work, "state"), pages, made]
            if subprocess.run(sphinx, env=env).returncode:
                fail("Sphinx found errors in the pages")
            os.remove(os.path.join(made, ".buildinfo"))
    except files.WriteError as e:
        fail(f"{e}: name another folder")
    print(os.path.join(args.out, "index.html"))


if __name__ == "__main__":
    main()
