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

# Only libmultihead-nccl, which is loaded at run time, uses the classes of NCCL, so libmultihead runs on machines without NCCL.
nccl_symbols() { grep -E 'ProcessGroupNCCL|\bnccl[A-Z]' || true; }
nm -C "$library" > all_symbols
grep -q 'c10d::ProcessGroupGloo' all_symbols || fail "expected the undefined symbols of $library, which uses Gloo"
[ -z "$(nccl_symbols < all_symbols)" ] || fail "expected no symbol of NCCL; found $(nccl_symbols < all_symbols)"
nccl_library=${library%.so}-nccl.so
if [ -e "$nccl_library" ]; then
  nm -C "$nccl_library" > all_symbols
  [ -n "$(nccl_symbols < all_symbols)" ] || fail "expected the filter to find the classes of NCCL in $nccl_library"
fi
