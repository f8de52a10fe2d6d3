/* json.c - reads JSON as a tree of cJSON nodes, after the checks of json_tape.h, and writes JSON.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/decimal.h"
#include "base/json.h"
#include "base/json_tape.h"
#include "base/utf8.h"

/* struct json is never defined: a node is a cJSON seen through this pair. */
static const cJSON *raw(const struct json *n)
{
    return (const cJSON *)(const void *)n;
}

static const struct json *node(const cJSON *c)
{
    return (const struct json *)(const void *)c;
}

/* cJSON 1.7 keeps the place of the last error in a global, which every parse writes, whether it
 * gives the place to its caller or not. */
static pthread_mutex_t parsing = PTHREAD_MUTEX_INITIALIZER;

static cJSON *parse_alone(const char *text, size_t len)
{
    pthread_mutex_lock(&parsing);
    cJSON *root = cJSON_ParseWithLength(text, len);
    pthread_mutex_unlock(&parsing);
    return root;
}

int json_parse(const char *text, size_t len, struct json **ret_root, struct kvf_diag *d)
{
    struct json_tape tape;
    int err = json_tape_open(text, len, JSON_MOST, &tape, d);
    if (err)
        return err;
    err = json_tape_reject_nul(&tape, d);
    json_tape_finish(&tape);
    if (err)
        return err;
    cJSON *root = parse_alone(text, len); /* accepts every text that the tape accepts */
    if (!root)
        return KVF_E_NOMEM;
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
        if (len && !blank && is_control(cp)) /* in valid JSON it is part of a text */
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
