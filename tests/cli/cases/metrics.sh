# Scores of classes, numbers and answers equal the scores from scikit-learn, scipy and the definition of SQuAD.
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import scipy, sklearn' 2>/dev/null || skip "Python lacks scikit-learn and scipy"
export PYTHONPATH=$MH_CHECK_PYTHONPATH
programs=$(dirname "$(command -v mh-prep)")/../tests
python3 -B "$ROOT/tests/cli/metrics_parity.py" "$programs"
squad=${MH_DATA:-$ROOT/../shared/data}/squad-1.1/dev.json.zst
[ -f "$squad" ] || skip "no SQuAD (MH_DATA); the scores of generated rows are equal"
zstd -dcq "$squad" > dev.json
python3 -B "$ROOT/tests/cli/metrics_parity.py" "$programs" dev.json
