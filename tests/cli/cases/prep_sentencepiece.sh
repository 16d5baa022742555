# mh-prep and spm_encode of SentencePiece give the same token ids with BPE and unigram models.
command -v spm_encode >/dev/null || skip "spm_encode is not installed"
make_text 3000 | sed '5s/$/ naïve　ﬁne ½ “quoted” 東京 e\xcc\x81/; 9s/$/ \xf0\x9f\x98\x80 a\xc2\xa0b/' > text
for type in bpe unigram; do
  mh-prep vocab --type $type --size 80 --character-coverage 1 text > $type.model
  mh-prep lm --vocab $type.model text | mh-prep cat --ids - | sed 's/ \{0,1\}2$//' > ids
  spm_encode --model=$type.model --output_format=id < text > spm_ids 2>/dev/null
  cmp ids spm_ids
done
