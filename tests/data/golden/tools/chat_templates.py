"""Chat templates of our own with the constructs of published ones, which their licences keep out of here."""
from pathlib import Path

TURN = "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
TURNS = "{% for message in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
FIRST = "{% if messages[0]['role'] != 'system' %}{{ TEXT }}{% endif %}"


def written(text):
    """A template whose default message is the Jinja string `text`."""
    return FIRST.replace("TEXT", text) + TURNS


def stored(name):
    return Path(__file__).with_name("templates").joinpath(name + ".jinja").read_text(encoding="utf-8")


# A system message goes into the first user's; roles must take turns.
BRACKETS = stored("brackets")
# Headers, a date, tools that there are none of, in the way of files of many lines.
HEADERS = stored("headers")
# Thoughts of earlier answers are dropped, those after the last question kept; a switch.
THOUGHTS = stored("thoughts")
# The answer begins with an open thought; the state is in a namespace.
OPEN_THOUGHT = stored("open_thought")
# A macro, renamed roles, a first message that others carry.
TURN_MARKS = stored("turn_marks")
# A date, a switch, a mark of what is generated.
MODES = stored("modes")
# Line feeds of the file count, and the end token after answers alone.
PLAIN = stored("plain")

OWN = [("brackets", BRACKETS), ("headers", HEADERS), ("thoughts", THOUGHTS), ("open thought", OPEN_THOUGHT), ("turn marks", TURN_MARKS), ("modes", MODES), ("plain", PLAIN),
       ("no default message", TURNS),
       ("outside of strings", FIRST.replace("{{ TEXT }}", "<|im_start|>system\nOne.\nTwo 'quoted' \"words\".<|im_end|>\n") + TURNS),
       ("quotes escaped", written("'<|im_start|>system\\nYou\\'re \\\"brief\\\":\\t{a} \\\\n\\n<|im_end|>\\n'")),
       ("two lines", written("'<|im_start|>system\\nOne\\ntwo\nthree.<|im_end|>\\n'"))]
