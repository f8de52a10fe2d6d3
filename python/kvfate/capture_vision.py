"""Pictures in the prompt of a vision-language model: which tokens are their patches, and the grid that the patches stand in."""
PICTURE, FILM = ("image_token_id", "image_token_index"), ("video_token_id", "video_token_index")


def _ids(config, names):
    return {getattr(config, name, None) for name in names} - {None}


def patches(config, ids):
    """Of each token id whether it stands for a patch of a picture or film.  config: the whole model's."""
    known = _ids(config, PICTURE + FILM)
    return [i in known for i in ids]


def _square(config, n):
    """Rows of the square grid that a picture of fixed size is cut into, where pictures of n tokens can be such."""
    vision = getattr(config, "vision_config", None)
    size, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    side = size // patch if isinstance(size, int) and isinstance(patch, int) and patch else 0
    return side if side and n % side**2 == 0 else 0


def pictures(config, ids, grids=None):
    """[{"first": token, "tokens": n, "rows": r, "columns": c}] of the pictures among ids, in their order, without rows and columns where the
    grid is not known.  grids: an iterator over (frames, rows, columns) before patches are merged, as Qwen's processors give them."""
    wanted, out, i = _ids(config, PICTURE), [], 0
    merge = getattr(getattr(config, "vision_config", None), "spatial_merge_size", 1)
    while i < len(ids):
        if ids[i] not in wanted:
            i += 1
            continue
        end = next((k for k in range(i, len(ids)) if ids[k] not in wanted), len(ids))
        while i < end:
            one = {"first": i, "tokens": end - i}
            grid = next(grids, None) if grids is not None else None
            side = _square(config, end - i) if grids is None else 0
            if grid is not None:
                one |= {"rows": int(grid[1]) // merge, "columns": int(grid[2]) // merge}
            elif side:
                one |= {"rows": side, "columns": side}
            if "rows" in one:
                one["tokens"] = min(one["rows"] * one["columns"], end - i)
            out.append(one)
            i += one["tokens"]
    return out
