# libmultihead defines no class of Gloo: Debian's headers of Gloo are older than the Gloo in LibTorch, so a virtual table that is made
# from the headers would have other functions than LibTorch calls (lib/distributed/gloo_backend.cpp).
library=$(dirname "$(command -v mh-train || echo /)")/../lib/libmultihead.so
[ -e "$library" ] || skip "libmultihead is not built"
[ -n "$(command -v nm || true)" ] || skip "no nm"
# gloo_tables: prints the lines of a list of symbols that are virtual tables or type descriptions of Gloo.
gloo_tables() { grep -E '(vtable|typeinfo|VTT) (name )?for .*(gloo::|GlooStore|ProcessGroupGloo)' || true; }
[ -n "$(echo '0000 V vtable for c10d::ProcessGroupGloo::GlooStore' | gloo_tables)" ] || fail "expected the filter to find a virtual table of Gloo"
nm -C --defined-only "$library" > symbols
grep -q 'mh::distributed::make_gloo_backend' symbols || fail "expected the symbols of lib/distributed in $library"
[ -z "$(gloo_tables < symbols)" ] || fail "expected no virtual table of Gloo; found $(gloo_tables < symbols)"
