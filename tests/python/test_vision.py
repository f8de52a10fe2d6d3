#!/usr/bin/env python3
"""usage: test_vision.py KVFATE LIBKVFTRACE SOURCE_ROOT

Runs vision-language models under kvfate.capture: small random models of the Qwen2-VL, Qwen2.5-VL
and LLaVA families process a picture drawn here. Checks roles and grids; attention columns compared
with rows of the eager attention; evictions of patches; occupancy and survival by modality compared
with counts from evict_step and dense attention; and the figure of patches, pixel by pixel. Skips if
torch or transformers are not installed; KVFATE_TORCH_PYTHON names a Python that has them."""
import inspect
import os
import tempfile

from capture_checks import begin, refused

begin("capture of vision-language models", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.capture_vision import pictures  # noqa: E402
from kvfate.picture import held, washed  # noqa: E402

IMAGE, ROWS, COLUMNS = 290, 4, 6
SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
             bos_token_id=None, eos_token_id=None, pad_token_id=0)
AGE, MORE = 25, 12


def drawn():
    """Returns a disc and a block on a blue gradient, 112 x 168 pixels."""
    y, x = np.mgrid[:112, :168]
    out = np.zeros((112, 168, 3), np.uint8)
    out[..., 2] = np.linspace(60, 255, 168)[None]
    out[30:80, 40:100] = 220, 60, 40
    out[(y - 60)**2 + (x - 125)**2 < 600] = 250, 220, 60
    return out


def qwen(kind, how):
    """Returns a model of Qwen's family, and the inputs that its processor would make of the
    picture: patches of 14 x 14 pixels, merged 2 x 2."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    vision = dict(depth=2, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    vision |= dict(embed_dim=32, hidden_size=64, num_heads=2, mlp_ratio=2) if kind == "Qwen2VL" else dict(
        hidden_size=32, intermediate_size=48, out_hidden_size=64, num_heads=2, window_size=56, fullatt_block_indexes=[1])
    torch.manual_seed(1)
    config = getattr(transformers, kind.replace("VL", "VLConfig"))(
        text_config={**SIZES, "rope_parameters": rope, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, vision_config=vision,
        image_token_id=IMAGE, video_token_id=291, vision_start_token_id=292, vision_end_token_id=293)
    model = getattr(transformers, kind.replace("VL", "VLForConditionalGeneration"))(config).eval()
    model.set_attn_implementation(how)
    p = torch.tensor(drawn() / 255).float().permute(2, 0, 1).reshape(3, ROWS, 2, 14, COLUMNS, 2, 14).permute(1, 4, 2, 5, 0, 3, 6)
    pixels = p.reshape(-1, 3, 1, 14, 14).repeat(1, 1, 2, 1, 1).reshape(-1, 3 * 2 * 14 * 14)
    ids = torch.tensor([[5, 6, 292] + [IMAGE] * ROWS * COLUMNS + [293, *range(10, 60)]])
    given = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 2 * ROWS, 2 * COLUMNS]])}
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        given["mm_token_type_ids"] = (ids == IMAGE).int()
    return model, ids, given, (ROWS, COLUMNS)


def llava(how):
    torch.manual_seed(2)
    config = transformers.LlavaConfig(
        text_config={**SIZES, "model_type": "llama"}, image_token_index=IMAGE, vision_feature_layer=-1, image_seq_length=16,
        vision_config=dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14, projection_dim=32))
    model = transformers.LlavaForConditionalGeneration(config).eval()
    for layer in model.get_decoder().layers:
        layer.self_attn.q_proj.weight.data *= 60  # attention with strong preferences
    model.set_attn_implementation(how)
    pixels = torch.tensor(drawn()[:112:2, :112:2] / 255).float().permute(2, 0, 1)[None]
    return model, torch.tensor([[5, 6, 7] + [IMAGE] * 16 + list(range(10, 60))]), {"pixel_values": pixels}, (4, 4)


def captured(model, ids, given, path, **options):
    with kvfate.capture(model, None, out=path, existing="overwrite", **options):
        out = model.generate(ids, max_new_tokens=MORE, min_new_tokens=MORE, do_sample=False, **given)
    return kvfate.open(path), out


def whole(name, model, ids, given, grid):
    """A run without evictions: tokens, roles and grid, and columns compared with the attention that
    the library returns."""
    said = model.generate(ids, max_new_tokens=MORE, min_new_tokens=MORE, do_sample=False, **given)
    t, out = captured(model, ids, given, "whole.kvf", probes="paper")
    n, first = grid[0] * grid[1], int((ids[0] == IMAGE).int().argmax())
    check(name + ": tokens", torch.equal(said, out) and t["tokens.id"][:].tolist() == out[0, :-1].tolist())
    want = [3 if i == IMAGE else 0 for i in ids[0].tolist()] + [1] * (MORE - 1)
    check(name + ": roles", t["tokens.role"][:].tolist() == want, t["tokens.role"][:])
    check(name + ": grid", t.notes["pictures"] == [{"first": first, "tokens": n, "rows": grid[0], "columns": grid[1]}], t.notes.get("pictures"))
    model.set_attn_implementation("eager")
    extra = {"mm_token_type_ids": (out[:, :-1] == IMAGE).int()} if "mm_token_type_ids" in given else {}
    with torch.no_grad():
        dense = model(out[:, :-1], output_attentions=True, **{**given, **extra}).attentions
    for layer, w in enumerate(dense):
        sums = w[0].double().sum(1).numpy()
        check(name + ": mass", np.allclose(t["mass.sum"][layer], sums, atol=1e-4), np.abs(t["mass.sum"][layer] - sums).max())
    return t, [w[0].numpy() for w in dense]


def survival(t, dense):
    """Returns the survival of text and of patches at one age, from the ages: the last query for
    which a token is in the set with 90 % of the mass."""
    with open("classes.json", "w") as f:
        f.write('{"patch": "patch"}')
    table = kvfate.table("survival", "texts.kvf", by="class", criterion="mass.90", horizons=AGE, classes="classes.json", space="query")
    role, T = t["tokens.role"][:], t.steps
    for name, mine in (("patch", role == 3), ("function", role != 3)):
        alive = risk = 0
        for w in dense:
            for row in w:
                last = np.full(T, -1)
                for q in range(T):
                    order = np.argsort(-row[q, :q + 1], kind="stable")
                    size = int((np.cumsum(row[q, order].astype(np.float64)) < .9).sum()) + 1
                    last[order[:size]] = q
                at_risk = mine & (np.arange(T) + AGE < T)
                alive, risk = alive + int((at_risk & (last - np.arange(T) >= AGE)).sum()), risk + int(at_risk.sum())
        rows = {h: (int(table["alive"][k]), int(table["at_risk"][k])) for k, h in enumerate(table["class"]) if table["head"][k] == "all"}
        check("survival of " + name, 0 < alive < risk + (name == "patch") and rows.get(name) is not None and rows[name][1] == risk and abs(rows[name][0] - alive) <= 2, rows, alive, risk)


class Words:
    """A tokenizer that marks the patches."""
    backend_tokenizer = None

    def convert_ids_to_tokens(self, ids):
        return ["patch" if i == IMAGE else "a" for i in ids]


def evicting(model, ids, given, grid):
    """A cache that evicts every second patch after the prompt, and half of the rest eight steps
    later. Occupancy and panels must show it."""
    first, n, T = int((ids[0] == IMAGE).int().argmax()), grid[0] * grid[1], ids.shape[1]
    with kvfate.capture(model, Words(), out="cut.kvf", existing="overwrite", probes="paper") as c:
        c.follows, cache = True, None
        for t in range(T, T + MORE):
            out = model(ids[:, :T], use_cache=True, **given) if cache is None else model(ids[:, -1:], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            if t in (T, T + 8):
                keep = [i for i in range(cache.layers[0].keys.shape[2]) if not (first <= i < first + (n if t == T else n // 2) and i % 2)]
                for module, layer in c.modules.items():
                    held_by = cache.layers[layer]
                    held_by.keys, held_by.values = held_by.keys[:, :, keep], held_by.values[:, :, keep]
                    c.kept(module, torch.tensor(keep).expand(2, -1))
            ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
    t = kvfate.open("cut.kvf")
    place = np.arange(first, first + n)
    want = np.where(place % 2 == 1, T, 2**32 - 1)
    slots = [i for i in range(T) if not (first <= i < first + n and i % 2)]  # positions in the cache, by slot
    gone = [slots[k] for k in range(first, first + n // 2) if k % 2]
    for i in gone:
        if first <= i < first + n:
            want[i - first] = T + 8
    check("evictions of patches", all(np.array_equal(t.evict_step[layer, k][place], want) for layer in range(2) for k in range(2)), t.evict_step[0, 0][place], want)
    table = kvfate.table("occupancy", "cut.kvf", by="role", every=1)
    got = {(h, s, c): int(e) for h, s, c, e in zip(table["head"], table["step"], table["class"], table["entries"])}
    for step in (first + 2, T - 1, T, T + 7, T + 8, t.steps - 1):
        left, role, i = t.evict_step[1, 0][:], t["tokens.role"][:], np.arange(t.steps)
        for code, name in ((0, "prompt"), (1, "answer"), (3, "image")):
            count = int(((role == code) & (i <= step) & (step < left)).sum())
            check("occupancy of " + name, got["L1K0", step, name] == count, step, count)
    steps = (T - 1, T, -1)
    seen = held(t, "L1K0", steps)[0]
    check("panels", seen[0].all() and np.array_equal(seen[1].ravel(), want > T) and np.array_equal(seen[2].ravel(), want == 2**32 - 1))
    check("all heads", held(t, None, steps).shape == (4, 3, *grid) and held(t, ["L0K1", "L1K*"], steps).shape == (3, 3, *grid))
    refused("a head", ["L7K0", "L1K1"], lambda: held(t, "L7K0"))
    refused("a step", ["step 900"], lambda: held(t, "L0K0", [900]))
    refused("a picture", ["cut.kvf", "1 pictures", "number 1"], lambda: held(t, "L0K0", [-1], 1))
    figures(t, seen, steps)


def figures(t, seen, steps):
    """A cached patch has the picture's pixels, and an evicted one is mostly white."""
    picture = drawn() / 255
    one = washed(picture, seen[1].astype(float))
    rows, columns = seen[1].shape
    for y in range(0, 112, 9):
        for x in range(0, 168, 11):
            share = seen[1][y * rows // 112, x * columns // 168]
            want = picture[y, x] if share else 1 - 0.18 * (1 - picture[y, x])
            check("washed", np.allclose(one[y, x], want))
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        print("no figure is drawn: matplotlib is not installed")
        return
    figure = kvfate.patches(t, drawn(), head=["L0K0", "L1K0"], steps=steps)
    figure.save("patches.png")
    from matplotlib.image import imread
    pixels = imread("patches.png")
    check("a figure", pixels.shape[1] > pixels.shape[0] > 300 and figure.pdf.startswith(b"%PDF") and "<svg" in figure.svg and figure.svg == figure.svg)
    blue = (pixels[..., 2] > pixels[..., 0] + .5).mean()
    check("its panels are of the picture", 0.1 < blue < 0.6, blue)
    refused("a picture's kind", ["L9"], lambda: kvfate.patches(t, drawn(), head="L9K0"))


def grids():
    """Places of pictures and their grids, by hand."""
    class Config:
        image_token_id = 9
        vision_config = type("V", (), {"spatial_merge_size": 2})()
    ids = [1] + [9] * 12 + [2] + [9] * 4
    two = pictures(Config, ids, iter([[1, 4, 12], [1, 4, 4]]))
    check("two grids", two == [{"first": 1, "tokens": 12, "rows": 2, "columns": 6}, {"first": 14, "tokens": 4, "rows": 2, "columns": 2}], two)
    beside = pictures(Config, [9] * 8, iter([[1, 4, 4], [1, 4, 4]]))
    check("pictures without a token between", [p["first"] for p in beside] == [0, 4], beside)
    check("no grid", pictures(Config, ids) == [{"first": 1, "tokens": 12}, {"first": 14, "tokens": 4}])

    class Fixed:
        image_token_index = 9
        vision_config = type("V", (), {"image_size": 28, "patch_size": 14})()
    check("pictures of one size", [p["first"] for p in pictures(Fixed, [1] + [9] * 8)] == [1, 5] and "rows" not in pictures(Fixed, [9] * 5)[0])


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    grids()
    for kind, how in (("Qwen2VL", "sdpa"), ("Qwen2_5_VL", "eager")):
        subject = qwen(kind, how)
        whole(kind, *subject)
    kept_whole, attention = whole("Llava", *llava("sdpa"))
    model, tokens, inputs, _ = llava("eager")
    with kvfate.capture(model, Words(), out="texts.kvf", existing="overwrite") as c:
        model.generate(tokens, max_new_tokens=MORE, min_new_tokens=MORE, do_sample=False, **inputs)
    survival(kept_whole, attention)
    evicting(*qwen("Qwen2VL", "sdpa"))
finish()
