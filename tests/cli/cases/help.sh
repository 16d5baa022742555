# The help texts of every tool and subcommand match the golden files.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
for tool in convert eval finetune prep prune spectrum swap train; do
  golden --layout "$tool" 0 "mh-$tool" --help
  for sub in $(awk '/^[A-Za-z]+:$/ { section = tolower($0) } section == "subcommands:" && /^  [a-z]/ { print $1 }' out); do
    golden --layout "$tool-$sub" 0 "mh-$tool" "$sub" --help
  done
done
