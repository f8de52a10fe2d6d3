# The gallery's figures, in the order of the page; sourced by demo.sh.

four="h2o.kvf snapkv.kvf keydiff.kvf trimkv.kvf"

section "One text, four methods" "All methods get the same text, prompt and answer of the run with a full cache, and may \
cache 256 entries for each KV head. Under each word is a ribbon for each method."
draw fates.png "Time runs downward under each word. Black: later queries needed an evicted entry." \
    fates $four --tokens 60:150 --caption
draw tokens.png "The same words at the end of the run. The darker a token, the more heads cache it." \
    tokens $four --tokens 60:180 --style columns=2 --caption
draw regret.png "The attention that each method loses. The upper line is the best choice of 256 entries." \
    missed --as regret $four --every 1

section "When entries were evicted" "The prompt is read with a full cache. Then each head is cut to its budget, and \
every new token evicts an old one."
draw eviction.png "Four heads (rows) under four methods (columns)." \
    eviction $four --head L5K1,L11K1,L17K2,L22K1 --caption
draw density.png "Where in the text the cached entries are. Compare the beginning and the end." where $four

section "What trained gates predict" "The gates of TRIM-KV predict at the birth of an entry how long it is needed: \
beta to the power of its age is the retention. The method evicts entries of small retention."
draw retention-trimkv.png "Heads have different windows. Some keep a few tokens for the whole text." \
    retention trimkv.kvf --head L0K*,L11K*,L20K*,L28K* --tokens 0:400 --caption
draw tokens-beta.png "The half-lives that one head predicts. Ends of sentences have the longest." \
    tokens trimkv.kvf --head L11K1 --tokens 60:260 --style by=beta

section "How long tokens are needed" "In the run with a full cache, attention shows which entries were needed, and \
for how long."
draw retention-full.png "A token is blue until the last query that had it among its 64 largest weights." \
    retention full.kvf --head L0H0,L0H3,L0H6,L20H0,L20H3,L20H6 --caption
draw survival.png "Seven definitions of use. A ring is a half-life." survival full.kvf --caption
