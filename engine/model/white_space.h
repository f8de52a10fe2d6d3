/* white_space.h - the characters that Unicode calls White_Space, as a list of a regular
 * expression's set; private to the room.  PCRE2's own \s has U+180E too. */
#ifndef KVF_ENGINE_WHITE_SPACE_H
#define KVF_ENGINE_WHITE_SPACE_H

#define WHITE_SPACE                                                                                \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"             \
    "\\x{202F}\\x{205F}\\x{3000}"

#endif
