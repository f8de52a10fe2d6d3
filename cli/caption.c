/* caption.c - prints the caption of a figure. */
#include "cli/caption.h"

#include "base/buf.h"
#include "cli/shown.h"

int caption_print(const struct figure_options *o, const struct figure *f, const struct table *t,
                  struct kvf_diag *d)
{
    struct buf text = {0};
    int err = o->caption ? figure_caption(f, t, &o->style, &text, d) : KVF_OK;
    if (!err && text.len)
        shown_print(text.data, text.len);
    buf_finish(&text);
    return err;
}
