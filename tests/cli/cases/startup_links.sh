# mh-prep starts without LibTorch, and no tool links LibTorch's CUDA libraries, which take long to load.
ldd "$(command -v mh-prep)" > prep
! grep -q torch prep || fail "mh-prep links $(grep torch prep)"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
for tool in mh-train mh-finetune mh-convert mh-eval mh-swap; do
  ldd "$(command -v $tool)" > libraries
  grep -q torch_cpu libraries || fail "expected $tool to link LibTorch; check that ldd reads the right file"
  ! grep -q torch_cuda libraries || fail "$tool links $(grep torch_cuda libraries)"
done
