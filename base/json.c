#include <cjson/cJSON.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "base/json.h"
#include "base/utf8.h"

enum { MAX_BYTES = 16 << 20, MAX_DEPTH = 64 };

/* struct json is never defined: a node is a cJSON seen through this pair. */
static const cJSON *raw(const struct json *n)
{
    return (const cJSON *)(const void *)n;
}

static const struct json *node(const cJSON *c)
{
    return (const struct json *)(const void *)c;
}

/* cJSON recurses while parsing: bound the depth before it sees the text. */
static int check_depth(const char *s, size_t len, struct kvf_diag *d)
{
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return kvf_fail(d, KVF_E_LIMIT, "JSON is nested deeper than %d", MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return KVF_OK;
}

/* Returns whether a text has an escaped NUL, at which C would end it. */
static bool has_nul(const char *s, size_t len)
{
    for (size_t i = 0; i + 6 <= len; i++) {
        if (s[i] != '\\')
            continue;
        if (memcmp(s + i + 1, "u0000", 5) == 0)
            return true;
        i++;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_keys_of(const cJSON *object, struct kvf_diag *d)
{
    int n = cJSON_GetArraySize(object), err = KVF_OK, i = 0;
    if (n < 2)
        return KVF_OK;
    const char **name = calloc((size_t)n, sizeof *name);
    if (!name)
        return KVF_E_NOMEM;
    for (const cJSON *c = object->child; c && i < n; c = c->next)
        name[i++] = c->string;
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (i = 1; i < n && !err; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            err = kvf_fail(d, KVF_E_FORMAT, "JSON repeats the key \"%.80s\"", name[i]);
    free(name);
    return err;
}

/* Walks the tree with a stack of its own, as deep as check_depth allows. */
static int check_keys(const cJSON *root, struct kvf_diag *d)
{
    const cJSON *stack[MAX_DEPTH + 2];
    int n = 0;
    stack[n++] = root;
    while (n > 0) {
        const cJSON *c = stack[--n];
        if (!c)
            continue;
        int err = cJSON_IsObject(c) ? check_keys_of(c, d) : KVF_OK;
        if (err)
            return err;
        if (c != root)
            stack[n++] = c->next;
        if (c->child)
            stack[n++] = c->child;
    }
    return KVF_OK;
}

/* cJSON 1.7 keeps the place of the last error in a global, which every parse writes, whether it
 * gives the place to its caller or not. */
static pthread_mutex_t parsing = PTHREAD_MUTEX_INITIALIZER;

static cJSON *parse_alone(const char *text, size_t len, const char **ret_end)
{
    pthread_mutex_lock(&parsing);
    cJSON *root = cJSON_ParseWithLengthOpts(text, len, ret_end, 0);
    pthread_mutex_unlock(&parsing);
    return root;
}

int json_parse(const char *text, size_t len, struct json **ret_root, struct kvf_diag *d)
{
    if (len > MAX_BYTES)
        return kvf_fail(d, KVF_E_LIMIT, "JSON of %zu bytes is over the limit of %d", len,
                        MAX_BYTES);
    if (!utf8_valid(text, len) || memchr(text, 0, len))
        return kvf_fail(d, KVF_E_FORMAT, "JSON is not valid UTF-8 text");
    if (has_nul(text, len))
        return kvf_fail(d, KVF_E_FORMAT, "a text holds a NUL character (\\u0000); remove it");
    int err = check_depth(text, len, d);
    if (err)
        return err;
    const char *end = NULL;
    cJSON *root = parse_alone(text, len, &end);
    if (!root)
        return kvf_fail(d, KVF_E_FORMAT, "not valid JSON near byte %zu",
                        end ? (size_t)(end - text) : len);
    while (end < text + len && strchr(" \t\r\n", *end))
        end++;
    if (end < text + len)
        err = kvf_fail(d, KVF_E_FORMAT, "text after the JSON value at byte %zu",
                       (size_t)(end - text));
    if (!err)
        err = check_keys(root, d);
    if (err) {
        cJSON_Delete(root);
        return err;
    }
    *ret_root = (struct json *)(void *)root;
    return KVF_OK;
}

void json_free(struct json *root)
{
    cJSON_Delete((cJSON *)(void *)root);
}

const struct json *json_get(const struct json *object, const char *key)
{
    return cJSON_IsObject(raw(object)) ? node(cJSON_GetObjectItemCaseSensitive(raw(object), key))
                                       : NULL;
}

const struct json *json_at(const struct json *array, int i)
{
    return cJSON_IsArray(raw(array)) ? node(cJSON_GetArrayItem(raw(array), i)) : NULL;
}

int json_len(const struct json *n)
{
    return n && (json_is_array(n) || json_is_object(n)) ? cJSON_GetArraySize(raw(n)) : 0;
}

const char *json_key(const struct json *n)
{
    return n ? raw(n)->string : NULL;
}

const struct json *json_first(const struct json *n)
{
    return n && (json_is_array(n) || json_is_object(n)) ? node(raw(n)->child) : NULL;
}

const struct json *json_next(const struct json *n)
{
    return n ? node(raw(n)->next) : NULL;
}

const char *json_str(const struct json *n, const char *otherwise)
{
    return cJSON_IsString(raw(n)) ? raw(n)->valuestring : otherwise;
}

double json_num(const struct json *n, double otherwise)
{
    return cJSON_IsNumber(raw(n)) ? raw(n)->valuedouble : otherwise;
}

int64_t json_int(const struct json *n, int64_t otherwise)
{
    double v = json_num(n, NAN);
    return v >= -9007199254740992.0 && v <= 9007199254740992.0 && v == floor(v) ? (int64_t)v
                                                                                : otherwise;
}

bool json_bool(const struct json *n, bool otherwise)
{
    return cJSON_IsBool(raw(n)) ? cJSON_IsTrue(raw(n)) : otherwise;
}

bool json_is_object(const struct json *n)
{
    return cJSON_IsObject(raw(n));
}

bool json_is_array(const struct json *n)
{
    return cJSON_IsArray(raw(n));
}

bool json_is_null(const struct json *n)
{
    return cJSON_IsNull(raw(n));
}

static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

void json_put_str(struct buf *b, const char *s, size_t n)
{
    buf_char(b, '"');
    while (n) {
        uint32_t cp;
        size_t len = utf8_decode(s, n, &cp);
        if (!len) {
            buf_str(b, "\xef\xbf\xbd");
            len = 1;
        } else if (cp == '"' || cp == '\\') {
            buf_char(b, '\\');
            buf_char(b, (char)cp);
        } else if (is_control(cp)) {
            buf_printf(b, "\\u%04x", cp);
        } else {
            buf_add(b, s, len);
        }
        s += len;
        n -= len;
    }
    buf_char(b, '"');
}

void json_put_text(struct buf *b, const char *json)
{
    for (size_t n = strlen(json), len; n; json += len, n -= len) {
        uint32_t cp;
        len = utf8_decode(json, n, &cp);
        bool blank = *json == '\n' || *json == '\t' || *json == '\r';
        if (len && !blank && is_control(cp)) /* it stands in a string, or the JSON is none */
            buf_printf(b, "\\u%04x", cp);
        else
            buf_add(b, json, len);
        len += !len;
    }
}

void json_put_num(struct buf *b, double v)
{
    if (!isfinite(v)) {
        buf_str(b, "null");
        return;
    }
    char text[DECIMAL_MAX];
    buf_add(b, text, decimal_put(v, text));
}

void json_put_key(struct buf *b, const char *key)
{
    if (b->len && b->data[b->len - 1] != '{' && b->data[b->len - 1] != '[')
        buf_char(b, ',');
    json_put_str(b, key, strlen(key));
    buf_char(b, ':');
}

void json_put_node(struct buf *b, const struct json *n)
{
    char *text = cJSON_PrintUnformatted(raw(n));
    if (text)
        buf_str(b, text);
    else if (!b->err)
        b->err = KVF_E_NOMEM;
    cJSON_free(text);
}

void json_put_member_num(struct buf *b, const char *key, double v)
{
    json_put_key(b, key);
    json_put_num(b, v);
}

void json_put_member_str(struct buf *b, const char *key, const char *s)
{
    json_put_key(b, key);
    json_put_str(b, s, strlen(s));
}
