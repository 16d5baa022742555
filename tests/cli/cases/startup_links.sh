# mh-prep starts without LibTorch. No tool links LibTorch's CUDA libraries, which take long to load. The tools with a model link
# tcmalloc before glibc, so that it replaces malloc.
ldd "$(command -v mh-prep)" > prep
! grep -q torch prep || fail "mh-prep links $(grep torch prep)"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
for tool in mh-train mh-finetune mh-convert mh-eval mh-prune mh-spectrum mh-swap; do
  ldd "$(command -v $tool)" > libraries
  grep -q torch_cpu libraries || fail "expected $tool to link LibTorch; check that ldd reads the right file"
  grep -E 'tcmalloc|libc\.so' libraries | head -1 | grep -q tcmalloc || fail "expected $tool to link tcmalloc before glibc"
  ! grep -q torch_cuda libraries || fail "$tool links $(grep torch_cuda libraries)"
done
