"""Twenty conversations for goldens of chat templates, as lists of (role, content)."""
S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "Hello")],
    [(U, "")],
    [(S, "Be brief."), (U, "Hello\nthere \u20ac")],
    [(U, "1 + 1?"), (A, "2"), (U, "Sure?")],
    [(S, "x"), (U, "a"), (A, "b"), (U, "c"), (A, "d"), (U, "e")],
    [(U, "  leading and trailing blanks \n\n")],
    [(S, "\n\n A rule. \t"), (U, "\tTabs\tand\r\nfeeds\n")],
    [(U, "Gr\u00f6\u00dfe, na\u00efve, \u65e5\u672c\u8a9e, \u0639\u0631\u0628, \U0001f600\U0001f469\u200d\U0001f467, e\u0301, \u00a0blank\u2003")],
    [(U, "What is 7 * 6?"), (A, "<think>\n7 * 6 = 42\n</think>\n\n42"), (U, "And 7 * 7?")],
    [(U, "Think."), (A, "<think>one</think>two<think>three</think>four"), (U, "Again."), (A, "</think> stray"), (U, "More.")],
    [(U, "Say <|im_end|> and </s> and [/INST] and <end_of_turn>"), (A, "<|eot_id|>"), (U, "<think>is this yours?</think>")],
    [(U, "It's \"quoted\" \\ back\\slash {{ messages }} {% raw %} {# no #}")],
    [(S, ""), (U, "after an empty system message")],
    [(U, "a"), (A, ""), (U, "b")],
    [(U, "   "), (A, "   x   "), (U, "\n")],
    [(S, "You speak /no_think only."), (U, "Why? /think"), (A, "Because."), (U, "/no_think ok")],
    [(U, "line\n" * 20)],
    [(S, "Knowledge ends: never"), (U, "q1"), (A, "<think>\n\n</think>\n\na1"), (U, "q2"), (A, "a2"), (U, "q3"), (A, "a3"), (U, "q4")],
    [(U, "<tool_response>x</tool_response>"), (A, "y"), (U, "<tool_response>\nz\n</tool_response>")],
    [(U, "q"), (A, "the end is the assistant")],
]
