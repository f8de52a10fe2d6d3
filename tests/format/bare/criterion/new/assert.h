/* assert.h - Criterion's conditions; see criterion.h. */
#ifndef KVF_TESTS_BARE_ASSERT_H
#define KVF_TESTS_BARE_ASSERT_H

/* Comparisons of numbers and pointers, and of strings. */
#define BARE_COMPARE_str(a, op, b) (strcmp(a, b) op 0)
#define BARE_COMPARE_int(a, op, b) ((a)op(b))
#define BARE_COMPARE_i32(a, op, b) ((a)op(b))
#define BARE_COMPARE_u8(a, op, b) ((a)op(b))
#define BARE_COMPARE_u32(a, op, b) ((a)op(b))
#define BARE_COMPARE_u64(a, op, b) ((a)op(b))
#define BARE_COMPARE_i64(a, op, b) ((a)op(b))
#define BARE_COMPARE_flt(a, op, b) ((a)op(b))
#define BARE_COMPARE_ulong(a, op, b) ((a)op(b))
#define BARE_COMPARE_sz(a, op, b) ((a)op(b))
#define BARE_COMPARE_long(a, op, b) ((a)op(b))
#define BARE_COMPARE_dbl(a, op, b) ((a)op(b))
#define BARE_COMPARE_ptr(a, op, b) ((a)op(b))
#define BARE_COMPARE_chr(a, op, b) ((a)op(b))

#define eq(type, a, b) BARE_COMPARE_##type(a, ==, b)
#define ne(type, a, b) BARE_COMPARE_##type(a, !=, b)
#define lt(type, a, b) BARE_COMPARE_##type(a, <, b)
/* With two arguments, le() is a function of parse.h. */
#define le(...) BARE_CHOSEN(__VA_ARGS__, BARE_LE, BARE_FUNCTION_LE, )(__VA_ARGS__)
#define BARE_CHOSEN(a, b, c, chosen, ...) chosen
#define BARE_LE(type, a, b) BARE_COMPARE_##type(a, <=, b)
#define BARE_FUNCTION_LE(a, b) (le)(a, b)
#define ge(type, a, b) BARE_COMPARE_##type(a, >=, b)
#define zero(type, a) (!(a))
#define not(a) (!(a))
#define all(...) BARE_ALL(__VA_ARGS__, 1, 1, )
#define BARE_ALL(a, b, c, ...) ((a) && (b) && (c))
#define epsilon_eq(type, a, b, most) ((a) - (b) <= (most) && (b) - (a) <= (most))

#endif
