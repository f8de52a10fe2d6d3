# The gallery's figures, in the order of the page; sourced by demo.sh.

section "One text, four methods" "Under each word a ribbon for each method; time runs down. The coloured width is the fraction of \
KV heads that cache the token. Black: heads that evicted it although later queries needed it."
draw fates.png "The same sentences under four methods with 256 entries for each KV head." \
    fates h2o.kvf snapkv.kvf keydiff.kvf trimkv.kvf --tokens 60:130

section "What the text kept" "Each token is coloured by the share of KV heads that still hold it at the end."
for m in h2o snapkv keydiff; do
    draw tokens-$m.png "$m, 256 entries for each KV head: dark blue is kept by every head, white by none." \
        tokens $m.kvf
done

section "When entries were evicted" "One map for each KV head: columns are tokens, rows are queries. An entry is \
dark while queries see it. The prompt is prefilled in full, then each head is cut to its budget."
for m in h2o snapkv keydiff; do
    draw eviction-$m.png "$m: four layers from bottom to top of the model." \
        eviction $m.kvf --head L0K*,L10K*,L20K*,L29K*
done
draw eviction-h2o-all.png "h2o: all heads." eviction h2o.kvf

section "What trained gates say" "TRIM-KV's gates, trained for this model, say at birth how long an entry is worth \
keeping: beta to the power of its age is what is left of it. The budget makes evictions of that."
draw retention-trimkv.png "trimkv: what the gates say, twelve heads. Heads have their own windows, and their own \
tokens that last." retention trimkv.kvf --head L0K*,L11K*,L20K*,L28K*
draw eviction-trimkv.png "trimkv, 256 entries for each KV head, cut after every 64 tokens of the prompt: what the same heads still hold." \
    eviction trimkv.kvf --head L0K*,L11K*,L20K*,L28K*
draw tokens-trimkv.png "trimkv: dark blue is kept by every head, white by none." tokens trimkv.kvf
draw tokens-beta-trimkv.png "One head of it, L11K1, coloured by beta: it keeps the ends of sentences." \
    tokens trimkv.kvf --head L11K1 --style by=beta

section "How long tokens stay useful" "From the run with a full cache: nothing was evicted, so attention shows which \
entries were needed, and for how long."
draw retention-full.png "Last-use map: a token is dark until the last query that had it among its 64 largest \
weights." retention full.kvf --head L0H*,L10H*,L20H*,L29H*
draw survival-full.png "Share of tokens that are selected at an age of at least h steps, for seven meanings of \
selected." survival full.kvf
draw survival-map-full.png "The same for each head." survival full.kvf --figure survival-map
draw sparsity-last-use-full.png "Share of the attention triangle that lies after a token's last use." \
    size --as sparsity full.kvf --kind last-use

section "What the budget cost" "Sparsity of the attention triangle and the entries that each head holds. These \
methods give every head the same budget, so their maps are level; methods that share a budget between heads are not."
draw sparsity-h2o.png "h2o: share of the triangle that queries could not see." size --as sparsity h2o.kvf
draw occupancy-full.png "full: the cache grows with every token." size full.kvf
draw occupancy-h2o.png "h2o: after the prompt every head holds 256 entries." size h2o.kvf
