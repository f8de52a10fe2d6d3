/* white_space.h - private to engine/model: the characters with Unicode's property White_Space, as
 * the content of a set in a regular expression. PCRE2's \s also contains U+180E. */
#pragma once

#define WHITE_SPACE                                                                                \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"             \
    "\\x{202F}\\x{205F}\\x{3000}"
