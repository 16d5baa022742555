# Every recipe builds and has the parameter count that its table states.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
tools=$(dirname "$(command -v mh-train)")
python3 "$ROOT/tests/cli/recipes.py" "$tools" "$ROOT/configs/recipes"
expect 0 mh-train --dry-run --config "$ROOT/configs/recipes/wikitext2-small.toml" --set model.vocabulary_rows=33278
# BERT's second phase predicts 15% of the 512 tokens of a row.
expect 0 mh-train --dry-run --config <("$ROOT/configs/recipes/expand" fixhead/table1-heads8); expect_stdout "long_predictions	77"
# An unknown recipe is an error, also of mh-train if it reads the output of expand.
for name in mixhead nonsense/table1 "" mixhead/nonsense; do
  ! "$ROOT/configs/recipes/expand" "$name" > unknown.toml 2> err || fail "expected an error for the recipe '$name'"
  expect_stderr "expand: expected PAPER/RECIPE"
done
expect 2 mh-train --dry-run --config unknown.toml
expect_stderr "unknown key 'unknown-recipe'"
# recipes.py fails on a wrong parameter count, an incomplete row, and a recipe that does not build.
cp -r "$ROOT/configs" configs
find configs/recipes -maxdepth 1 -type f ! -name wikitext2-small.toml ! -name mixhead.tsv ! -name training.tsv ! -name expand -delete
sed -i '1b; /^table2-vanilla/!d' configs/recipes/mixhead.tsv
expect 0 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes; expect_stdout "6 recipes, 1 of them small"
edit_recipe() { sed -i "/^$1	/{$2}" configs/recipes/mixhead.tsv; }
edit_recipe table2-vanilla 's/67,478,528/67,478,529/'
edit_recipe table2-vanilla-sigsoftmax 's/67M/69M/'
edit_recipe table2-vanilla-mixhead-a 's/	[^	]*$//'
edit_recipe table2-vanilla-mixhead-a-sigsoftmax 's/	perplexity.*/	/'
edit_recipe table2-vanilla-mixhead-b 's|\(mixhead-b	\)\(	67\)|\1nonsense=1\2|'
sed -i 's/length = "20000u"/length = "50000u"/' configs/recipes/base/wikitext2-vanilla.toml
expect 1 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes
expect_stdout "table2-vanilla: expected the parameter count of the table, 67,478,529; found 67,478,528"
expect_stdout "table2-vanilla-sigsoftmax: expected the parameter count of the paper, 69M"
expect_stdout "mixhead/table2-vanilla-mixhead-a: expand: expected PAPER/RECIPE, a row of 7 columns"
expect_stdout "table2-vanilla-mixhead-a-sigsoftmax: expected an entry in the column published"
expect_stdout "unknown key 'nonsense'"
expect_stdout "table2-vanilla-mixhead-b-sigsoftmax: expected the training 20000u, 9216, 4000, 88.2 of training.tsv; found 50000u, 9216, 4000, 220.6"
expect 1 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes --write
grep -q '	67,478,528	67M' configs/recipes/mixhead.tsv || fail "expected the parameter count of the model; found $(cat configs/recipes/mixhead.tsv)"
