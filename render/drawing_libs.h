/* drawing_libs.h - the functions of cairo, Pango and libpng, which are opened when something is
 * drawn: 35 shared libraries hang on them, and most commands draw nothing.  To be included by the
 * files that draw, in place of the headers of those libraries.  A function that a file calls and
 * that is not in both lists is an undefined reference when kvfate is linked. */
#ifndef KVF_RENDER_DRAWING_LIBS_H
#define KVF_RENDER_DRAWING_LIBS_H

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <pango/pangocairo.h>
#include <png.h>

#include <kvf/err.h>

/* Opens them, once.  KVF_OK, or KVF_E_NOTFOUND with a sentence. */
int drawing_open(struct kvf_diag *d);

#define DRAWING_PANGOCAIRO(X) \
    X(cairo_arc) X(cairo_clip) X(cairo_copy_path) X(cairo_create) X(cairo_destroy) \
    X(cairo_fill) X(cairo_font_options_create) X(cairo_font_options_destroy) \
    X(cairo_font_options_set_antialias) X(cairo_font_options_set_hint_metrics) \
    X(cairo_font_options_set_hint_style) X(cairo_get_source) X(cairo_image_surface_create) \
    X(cairo_image_surface_get_data) X(cairo_image_surface_get_height) \
    X(cairo_image_surface_get_stride) X(cairo_image_surface_get_width) X(cairo_line_to) \
    X(cairo_move_to) X(cairo_new_path) X(cairo_new_sub_path) X(cairo_paint) \
    X(cairo_path_destroy) X(cairo_pattern_set_filter) X(cairo_pdf_surface_create_for_stream) \
    X(cairo_pdf_surface_set_metadata) X(cairo_recording_surface_create) X(cairo_rectangle) \
    X(cairo_restore) X(cairo_rotate) X(cairo_save) X(cairo_scale) X(cairo_set_antialias) \
    X(cairo_set_dash) X(cairo_set_line_join) X(cairo_set_line_width) X(cairo_set_source_rgb) \
    X(cairo_set_source_rgba) X(cairo_set_source_surface) X(cairo_show_page) X(cairo_status) \
    X(cairo_stroke) X(cairo_surface_destroy) X(cairo_surface_finish) X(cairo_surface_flush) \
    X(cairo_surface_mark_dirty) X(cairo_surface_status) X(cairo_surface_write_to_png_stream) \
    X(cairo_svg_surface_create_for_stream) X(cairo_translate) X(g_free) X(g_object_unref) \
    X(g_strdup) X(pango_attr_font_features_new) X(pango_attr_insert_hyphens_new) \
    X(pango_attr_list_insert) X(pango_attr_list_new) X(pango_attr_list_unref) \
    X(pango_attr_weight_new) X(pango_cairo_context_get_font_options) \
    X(pango_cairo_context_set_font_options) X(pango_cairo_create_layout) \
    X(pango_cairo_glyph_string_path) X(pango_cairo_show_glyph_item) \
    X(pango_cairo_show_glyph_string) X(pango_cairo_show_layout) X(pango_context_get_font_map) \
    X(pango_context_load_font) X(pango_context_set_base_dir) \
    X(pango_context_set_round_glyph_positions) X(pango_font_describe) \
    X(pango_font_description_copy) X(pango_font_description_free) \
    X(pango_font_description_from_string) X(pango_font_description_get_family) \
    X(pango_font_description_get_style) X(pango_font_description_get_weight) \
    X(pango_font_description_new) X(pango_font_description_set_absolute_size) \
    X(pango_font_description_set_family) X(pango_font_description_set_weight) \
    X(pango_font_family_get_name) X(pango_font_get_hb_font) X(pango_font_map_list_families) \
    X(pango_get_log_attrs) X(pango_glyph_item_iter_init_start) \
    X(pango_glyph_item_iter_next_cluster) X(pango_glyph_string_extents) \
    X(pango_layout_get_baseline) X(pango_layout_get_context) X(pango_layout_get_iter) \
    X(pango_layout_get_line_count) X(pango_layout_get_line_readonly) X(pango_layout_get_size) \
    X(pango_layout_get_text) X(pango_layout_get_width) X(pango_layout_iter_free) \
    X(pango_layout_iter_get_run_extents) X(pango_layout_iter_get_run_readonly) \
    X(pango_layout_iter_next_run) X(pango_layout_line_get_extents) \
    X(pango_layout_set_attributes) X(pango_layout_set_auto_dir) \
    X(pango_layout_set_font_description) X(pango_layout_set_single_paragraph_mode) \
    X(pango_layout_set_text) X(pango_layout_set_width) X(pango_layout_set_wrap)
#define DRAWING_PNG(X) \
    X(png_create_info_struct) X(png_create_write_struct) X(png_destroy_write_struct) \
    X(png_error) X(png_get_io_ptr) X(png_longjmp) X(png_set_IHDR) X(png_set_compression_level) \
    X(png_set_filter) X(png_set_longjmp_fn) X(png_set_pHYs) X(png_set_text) \
    X(png_set_write_fn) X(png_write_end) X(png_write_info) X(png_write_row)

struct drawing {
#define X(name) __typeof__(name) *name;
    DRAWING_PANGOCAIRO(X) DRAWING_PNG(X)
#undef X
};
extern struct drawing drawing; /* valid after drawing_open */

#ifndef KVF_DRAWING_LIBS_LOADER
#define cairo_arc drawing.cairo_arc
#define cairo_clip drawing.cairo_clip
#define cairo_copy_path drawing.cairo_copy_path
#define cairo_create drawing.cairo_create
#define cairo_destroy drawing.cairo_destroy
#define cairo_fill drawing.cairo_fill
#define cairo_font_options_create drawing.cairo_font_options_create
#define cairo_font_options_destroy drawing.cairo_font_options_destroy
#define cairo_font_options_set_antialias drawing.cairo_font_options_set_antialias
#define cairo_font_options_set_hint_metrics drawing.cairo_font_options_set_hint_metrics
#define cairo_font_options_set_hint_style drawing.cairo_font_options_set_hint_style
#define cairo_get_source drawing.cairo_get_source
#define cairo_image_surface_create drawing.cairo_image_surface_create
#define cairo_image_surface_get_data drawing.cairo_image_surface_get_data
#define cairo_image_surface_get_height drawing.cairo_image_surface_get_height
#define cairo_image_surface_get_stride drawing.cairo_image_surface_get_stride
#define cairo_image_surface_get_width drawing.cairo_image_surface_get_width
#define cairo_line_to drawing.cairo_line_to
#define cairo_move_to drawing.cairo_move_to
#define cairo_new_path drawing.cairo_new_path
#define cairo_new_sub_path drawing.cairo_new_sub_path
#define cairo_paint drawing.cairo_paint
#define cairo_path_destroy drawing.cairo_path_destroy
#define cairo_pattern_set_filter drawing.cairo_pattern_set_filter
#define cairo_pdf_surface_create_for_stream drawing.cairo_pdf_surface_create_for_stream
#define cairo_pdf_surface_set_metadata drawing.cairo_pdf_surface_set_metadata
#define cairo_recording_surface_create drawing.cairo_recording_surface_create
#define cairo_rectangle drawing.cairo_rectangle
#define cairo_restore drawing.cairo_restore
#define cairo_rotate drawing.cairo_rotate
#define cairo_save drawing.cairo_save
#define cairo_scale drawing.cairo_scale
#define cairo_set_antialias drawing.cairo_set_antialias
#define cairo_set_dash drawing.cairo_set_dash
#define cairo_set_line_join drawing.cairo_set_line_join
#define cairo_set_line_width drawing.cairo_set_line_width
#define cairo_set_source_rgb drawing.cairo_set_source_rgb
#define cairo_set_source_rgba drawing.cairo_set_source_rgba
#define cairo_set_source_surface drawing.cairo_set_source_surface
#define cairo_show_page drawing.cairo_show_page
#define cairo_status drawing.cairo_status
#define cairo_stroke drawing.cairo_stroke
#define cairo_surface_destroy drawing.cairo_surface_destroy
#define cairo_surface_finish drawing.cairo_surface_finish
#define cairo_surface_flush drawing.cairo_surface_flush
#define cairo_surface_mark_dirty drawing.cairo_surface_mark_dirty
#define cairo_surface_status drawing.cairo_surface_status
#define cairo_surface_write_to_png_stream drawing.cairo_surface_write_to_png_stream
#define cairo_svg_surface_create_for_stream drawing.cairo_svg_surface_create_for_stream
#define cairo_translate drawing.cairo_translate
#define g_free drawing.g_free
#define g_object_unref drawing.g_object_unref
#define g_strdup drawing.g_strdup
#define pango_attr_font_features_new drawing.pango_attr_font_features_new
#define pango_attr_insert_hyphens_new drawing.pango_attr_insert_hyphens_new
#define pango_attr_list_insert drawing.pango_attr_list_insert
#define pango_attr_list_new drawing.pango_attr_list_new
#define pango_attr_list_unref drawing.pango_attr_list_unref
#define pango_attr_weight_new drawing.pango_attr_weight_new
#define pango_cairo_context_get_font_options drawing.pango_cairo_context_get_font_options
#define pango_cairo_context_set_font_options drawing.pango_cairo_context_set_font_options
#define pango_cairo_create_layout drawing.pango_cairo_create_layout
#define pango_cairo_glyph_string_path drawing.pango_cairo_glyph_string_path
#define pango_cairo_show_glyph_item drawing.pango_cairo_show_glyph_item
#define pango_cairo_show_glyph_string drawing.pango_cairo_show_glyph_string
#define pango_cairo_show_layout drawing.pango_cairo_show_layout
#define pango_context_get_font_map drawing.pango_context_get_font_map
#define pango_context_load_font drawing.pango_context_load_font
#define pango_context_set_base_dir drawing.pango_context_set_base_dir
#define pango_context_set_round_glyph_positions drawing.pango_context_set_round_glyph_positions
#define pango_font_describe drawing.pango_font_describe
#define pango_font_description_copy drawing.pango_font_description_copy
#define pango_font_description_free drawing.pango_font_description_free
#define pango_font_description_from_string drawing.pango_font_description_from_string
#define pango_font_description_get_family drawing.pango_font_description_get_family
#define pango_font_description_get_style drawing.pango_font_description_get_style
#define pango_font_description_get_weight drawing.pango_font_description_get_weight
#define pango_font_description_new drawing.pango_font_description_new
#define pango_font_description_set_absolute_size drawing.pango_font_description_set_absolute_size
#define pango_font_description_set_family drawing.pango_font_description_set_family
#define pango_font_description_set_weight drawing.pango_font_description_set_weight
#define pango_font_family_get_name drawing.pango_font_family_get_name
#define pango_font_get_hb_font drawing.pango_font_get_hb_font
#define pango_font_map_list_families drawing.pango_font_map_list_families
#define pango_get_log_attrs drawing.pango_get_log_attrs
#define pango_glyph_item_iter_init_start drawing.pango_glyph_item_iter_init_start
#define pango_glyph_item_iter_next_cluster drawing.pango_glyph_item_iter_next_cluster
#define pango_glyph_string_extents drawing.pango_glyph_string_extents
#define pango_layout_get_baseline drawing.pango_layout_get_baseline
#define pango_layout_get_context drawing.pango_layout_get_context
#define pango_layout_get_iter drawing.pango_layout_get_iter
#define pango_layout_get_line_count drawing.pango_layout_get_line_count
#define pango_layout_get_line_readonly drawing.pango_layout_get_line_readonly
#define pango_layout_get_size drawing.pango_layout_get_size
#define pango_layout_get_text drawing.pango_layout_get_text
#define pango_layout_get_width drawing.pango_layout_get_width
#define pango_layout_iter_free drawing.pango_layout_iter_free
#define pango_layout_iter_get_run_extents drawing.pango_layout_iter_get_run_extents
#define pango_layout_iter_get_run_readonly drawing.pango_layout_iter_get_run_readonly
#define pango_layout_iter_next_run drawing.pango_layout_iter_next_run
#define pango_layout_line_get_extents drawing.pango_layout_line_get_extents
#define pango_layout_set_attributes drawing.pango_layout_set_attributes
#define pango_layout_set_auto_dir drawing.pango_layout_set_auto_dir
#define pango_layout_set_font_description drawing.pango_layout_set_font_description
#define pango_layout_set_single_paragraph_mode drawing.pango_layout_set_single_paragraph_mode
#define pango_layout_set_text drawing.pango_layout_set_text
#define pango_layout_set_width drawing.pango_layout_set_width
#define pango_layout_set_wrap drawing.pango_layout_set_wrap
#define png_create_info_struct drawing.png_create_info_struct
#define png_create_write_struct drawing.png_create_write_struct
#define png_destroy_write_struct drawing.png_destroy_write_struct
#define png_error drawing.png_error
#define png_get_io_ptr drawing.png_get_io_ptr
#define png_longjmp drawing.png_longjmp
#define png_set_IHDR drawing.png_set_IHDR
#define png_set_compression_level drawing.png_set_compression_level
#define png_set_filter drawing.png_set_filter
#define png_set_longjmp_fn drawing.png_set_longjmp_fn
#define png_set_pHYs drawing.png_set_pHYs
#define png_set_text drawing.png_set_text
#define png_set_write_fn drawing.png_set_write_fn
#define png_write_end drawing.png_write_end
#define png_write_info drawing.png_write_info
#define png_write_row drawing.png_write_row
#endif

#endif
