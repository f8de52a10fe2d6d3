"""A process that draws figures of tables one after another (draw_table.c), so that it loads fonts once, and the list of
figures.  Standard library.
"""
import atexit
import json
import subprocess


def figures(kvfate):
    """Return the objects of `kvfate list figures --json`, one for each figure and table.  "label" is the name of the
    figure, or TABLE-FIGURE if it draws several tables.
    """
    listed = json.loads(subprocess.run([kvfate, "list", "figures", "--json"], capture_output=True, check=True).stdout)
    names = [f["name"] for f in listed]
    return [{**f, "label": f["name"] if names.count(f["name"]) == 1 else f"{f['table']}-{f['name']}"} for f in listed]


class Server:
    """Starts with the first figure, and again if it died."""

    def __init__(self, draw_table):
        self.draw_table, self.process = draw_table, None
        atexit.register(self.end)

    def end(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()

    def __call__(self, table, figure, out, style="", size="", dpi="", **more):
        """Return the exit status, negative if the process died, and the message; more: title, cmap, font, vmin, vmax."""
        if not self.process or self.process.poll() is not None:
            self.process = subprocess.Popen([self.draw_table], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        p = self.process
        words = [table, figure, out, style, size, dpi or "0", *(f"{k}={v}" for k, v in more.items())]
        p.stdin.write(("\t".join(words) + "\n").encode())
        p.stdin.flush()
        status, _, size = p.stdout.readline().decode().partition(" ")
        if not size:
            return p.wait() or -1, ""
        return int(status), p.stdout.read(int(size)).decode(errors="replace")
