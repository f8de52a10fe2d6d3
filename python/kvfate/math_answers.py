r"""Extraction and comparison of final answers in mathematics: numbers, \boxed{} and LaTeX.

`same_latex` is the comparison of strings that was published with MATH (Hendrycks et al. 2021), and `graded` that with PRM800K (Lightman et al.
2023), which also compares symbolically.  `graded` needs sympy and pylatexenc, and ends each comparison after some seconds."""
import logging
import multiprocessing
import re
import resource

from .errors import needing

SECONDS, MEMORY = 10, 4 << 30  # of one symbolic comparison
NO_ANSWER = "[invalid]"


def boxed(text):
    r"""Returns the last \boxed{...} or else the last \fbox{...} with its braces balanced; None without a closed box."""
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return None
    depth = 0
    for i in range(start, len(text)):
        if text[i] == "{":
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return text[start:i + 1]
    return None


def inside(box):
    r"""Returns the content of \boxed{...}; None for other boxes."""
    return box[len("\\boxed{"):-1] if box and box.startswith("\\boxed{") and box.endswith("}") else None


# ---- LaTeX as a string

DROPPED = ("\n", "\\!")
SAME = (("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"))
MARKS = ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$")


class _Odd(Exception):
    """A text that the published rule cannot normalise: it then compares the texts as they are."""


def _roots(text):
    r"""Writes \sqrt3 as \sqrt{3}."""
    head, *rest = text.split("\\sqrt")
    if not all(rest):
        raise _Odd
    return head + "".join("\\sqrt" + (r if r[0] == "{" else "{%s}%s" % (r[0], r[1:])) for r in rest)


def _fractions(text):
    r"""Writes \frac12 as \frac{1}{2}; \frac with a single character after it leaves the text unchanged."""
    head, *rest = text.split("\\frac")
    for r in rest:
        if not r:
            raise _Odd
        if r[0] == "{":
            head += "\\frac" + r
        elif len(r) < 2:
            return text
        else:
            head += "\\frac{%s}%s%s" % (r[0], "{" if r[1] == "{" else "{%s}" % r[1], r[2:])
    return head


def _slash(text, strict):
    r"""Writes a/b of two integers as \frac{a}{b}.  strict: other operands are an error, as in the harness's copy of the rule."""
    parts = text.split("/")
    if len(parts) != 2:
        return text
    try:
        a, b = map(int, parts)
    except ValueError:
        if strict:
            raise _Odd from None
        return text
    return "\\frac{%d}{%d}" % (a, b) if text == "%d/%d" % (a, b) else text


def _plain(text, strict=False):
    """Returns the normal form of a LaTeX answer after Hendrycks et al."""
    for old in DROPPED:
        text = text.replace(old, "")
    for old, new in SAME:
        text = text.replace(old, new)
    for old in MARKS:
        text = text.replace(old, "")
    if text.count("\\text{ ") > 1:
        raise _Odd
    text = text.split("\\text{ ")[0].replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = "0" + text if text[0] == "." else text
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left) <= 2:
        text = right
    text = _fractions(_roots(text).replace(" ", ""))
    return _slash("\\frac{1}{2}" if text == "0.5" else text, strict)


def same_latex(a, b, strict=False):
    """Returns whether two LaTeX answers have the same normal form; None equals only None.  strict: as lm-evaluation-harness does."""
    if a is None or b is None:
        return a is b
    try:
        return _plain(a, strict) == _plain(b, strict)
    except _Odd:
        return a == b


# ---- symbolic comparison

UNITS = ("degree cm centimeter meter mile second minute hour day week month year foot feet inch yard").split()
POWERS = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
SIGNS = {"√": "sqrt", "π": "pi", "∞": "inf", "∪": "U", "·": "*", "×": "*"}
BRACKETS = "()[]"


def _without_text(answer):
    found = re.search(r"^\\text\{(.+?)\}$", answer)
    return found[1] if found else answer


def _first_form(answer):
    """Returns the normal form that PRM800K compares first."""
    answer = answer.strip()
    try:
        return _plain(_without_text(answer).strip())
    except _Odd:
        return answer


def _whole(text):
    """Returns whether a text is a number within 1e-7 of an integer; commas between thousands are allowed."""
    try:
        x = float(_no_commas(text))
        return abs(x - int(round(x))) <= 1e-7
    except (ValueError, OverflowError):
        return False


def _no_commas(text):
    while True:
        shorter = re.sub(r"(\d),(\d\d\d)($|\D)", r"\1\2\3", text)
        if shorter == text:
            return text
        text = shorter


def _from_latex(text):
    from pylatexenc import latex2text
    logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # it warns of every LaTeX error in an answer
    text = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac").replace("\\frac", " \\frac")
    text = latex2text.LatexNodes2Text().latex_to_text(text)
    for sign, word in SIGNS.items():
        text = text.replace(sign, word)
    return text.strip()


def _second_form(text):
    """Returns the normal form that PRM800K compares symbolically: without units, dollars, percents, LaTeX and spaces."""
    text = _without_text(text)
    for old, new in (("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "), *POWERS.items()):
        text = text.replace(old, new)
    for unit in UNITS:
        text = re.sub(r"%s(es)?(s)? *(\^[0-9]+)?" % unit, "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text and text[0] == "{" and text[-1] == "}":
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    try:
        x = float(text)
        if abs(x - int(round(x))) <= 1e-7:
            text = str(int(round(x)))
    except (ValueError, OverflowError):
        pass
    if "\\" in text:
        try:
            text = _from_latex(text)
        except Exception:  # the parser raises many kinds; the published rule keeps the text
            pass
    text = re.sub("- *", "-", text)
    text = re.sub("([0-9]) +([0-9])", r"\1+\2", text)
    for mark in " {}":
        text = text.replace(mark, "")
    text = text.lower()
    return str(int(float(text.replace(",", "")))) if _whole(text) else text


def _parts(text):
    """Returns the elements of a tuple or an interval, or a list of the text itself."""
    text = _no_commas(text)
    if not text:
        return []
    if len(text) > 2 and text[0] in BRACKETS and text[-1] in BRACKETS and not set(text[1:-1]) & set(BRACKETS):
        return [x.strip() for x in text[1:-1].split(",")]
    return [text]


def _may_parse(expression):
    """Returns whether the published rule parses an expression: at most two unknown letters, and no powers that may hang."""
    letters = {c for c in expression.replace("sqrt", "").replace("frac", "") if c.isalpha()}
    return len(letters) <= 2 and "^{" not in expression and "^(" not in expression and not re.search(r"\^[0-9]+\^|\^[0-9][0-9]+", expression)


def _zero(expression):
    """Returns whether sympy simplifies an expression to 0."""
    import sympy
    from sympy.parsing import sympy_parser as p
    try:
        return bool(sympy.simplify(p.parse_expr(expression.replace("^", "**"), transformations=(
            p.standard_transformations + (p.implicit_multiplication_application,)))) == 0)
    except Exception:  # of the parser, of any kind: not equal
        return False


def _tell_zero(expression, end):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # an answer such as 9**9**9 must not fill the machine
    end.send(_zero(expression))


def _is_zero(expression):
    """Returns _zero() of an expression, computed by a process that is killed after SECONDS; False if it was killed."""
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_tell_zero, args=(expression, theirs), daemon=True)
    worker.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(SECONDS) else False
    except EOFError:
        return False
    finally:
        worker.kill()
        worker.join()
        ours.close()


def _same_part(gold, given):
    def fraction(x):
        return re.search(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$", x)
    if fraction(gold) and fraction(given):
        return gold == given  # a fraction that is not reduced is wrong
    if _whole(gold) != _whole(given):
        return False
    expression = "(%s)-(%s)" % (gold, given)
    return _may_parse(expression) and _is_zero(expression)


def graded(given, gold):
    """Returns whether an answer is right by the grader of PRM800K."""
    with needing("the scorer math-prm800k", "sympy", "pylatexenc"):
        import pylatexenc  # noqa: F401
        import sympy  # noqa: F401
    if given is None:
        return False
    if _first_form(given) == _first_form(gold):
        return True
    a, b = _second_form(gold), _second_form(given)
    if a == b:
        return True
    if not b:
        return False
    golds, ours = _parts(a), _parts(b)
    if len(golds) != len(ours) or len(golds) > 1 and (a[0], a[-1]) != (b[0], b[-1]):
        return False
    return all(_same_part(x, y) for x, y in zip(golds, ours))


# ---- numbers of GSM8K

def _cleaned(text):
    """Returns a text as the exact match of lm-evaluation-harness compares it."""
    for pattern in (",", r"\$", r"(?s).*#### ", r"\.$"):
        text = re.sub(pattern, "", text)
    return text.lower()


def same_number_text(found, gold):
    """Returns whether a number that was extracted equals a gold answer by the harness's exact match of strings."""
    return _cleaned(found) == _cleaned(gold)


def strict_number(text):
    """Returns the first number after "#### ", or NO_ANSWER."""
    found = re.search(r"#### (-?[0-9.,]+)", text)
    return found[1].strip() if found else NO_ANSWER


def flexible_number(text):
    """Returns the last run of digits, dots, commas and dollars of the harness's rule flexible-extract, or NO_ANSWER."""
    found = [a or b for a, b in re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", text)]
    return found[-1].strip() if found else NO_ANSWER
