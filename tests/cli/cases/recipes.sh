# Every recipe builds and has the parameter count that its comment states; the table of recipes lists all of them.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
tools=$(dirname "$(command -v mh-train)")
python3 "$ROOT/tests/cli/recipes.py" "$tools" "$ROOT/configs/recipes"
expect 0 mh-train --dry-run --config "$ROOT/configs/recipes/wikitext2-small.toml" --set model.vocabulary_rows=33278
# BERT's second phase predicts 15% of the 512 tokens of a row.
expect 0 mh-train --dry-run --config "$ROOT/configs/recipes/fixhead/table1-heads8.toml"; printed "long_predictions	77"
# recipes.py fails on a wrong parameter count, a comment without a count, a recipe that does not build, and a table that
# lacks a recipe.
cp -r "$ROOT/configs" configs
find configs/recipes -mindepth 1 -maxdepth 1 -type d ! -name base ! -name mixhead -exec rm -r {} +
find configs/recipes/mixhead -name '*.toml' ! -name 'table2-vanilla*' -delete
expect 1 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes; printed "expected the table of all recipes"
expect 0 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes --write; printed "6 recipes"
sed -i 's/67,478,528/67,478,529/' configs/recipes/mixhead/table2-vanilla.toml
sed -i 's/67M/69M/' configs/recipes/mixhead/table2-vanilla-sigsoftmax.toml
sed -i '1d' configs/recipes/mixhead/table2-vanilla-mixhead-a.toml
echo 'nonsense = 1' >> configs/recipes/mixhead/table2-vanilla-mixhead-b.toml
sed -i 's/length = "20000u"/length = "50000u"/' configs/recipes/base/wikitext2-vanilla.toml
expect 1 python3 "$ROOT/tests/cli/recipes.py" "$tools" configs/recipes
printed "table2-vanilla.toml: expected the parameter count of the comment, 67,478,529; found 67,478,528"
printed "table2-vanilla-sigsoftmax.toml: expected the parameter count of the paper, 69M"
printed "table2-vanilla-mixhead-a.toml: expected a first comment with experiment"
printed "unknown key 'nonsense'"
printed "table2-vanilla-mixhead-b-sigsoftmax.toml: expected 20,000 updates of 9,216 tokens (88.2 epochs), warm-up 4,000; found 50,000 updates of 9,216 tokens (220.6 epochs)"
