#include "text/records/sequence_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/record_kind.h"
#include "io/shard_format.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

namespace mh::text {

SequenceCheck::SequenceCheck(const io::ShardHeader& header, const std::string& name,
                             const std::vector<uint32_t>& lengths)
    : name_(name), lengths_(lengths) {
  const io::RecordKind* kind = io::record_kind(header.kind);
  if (kind == nullptr || kind->allows_any_tokens())
    return;  // the shard readers check that the tokens are in the vocabulary
  for (size_t i = 0; i < header.field_names.size(); ++i) {
    Field field{header.field_names[i], header.limit_of(i), -1};
    if (i < kind->num_token_fields()) {
      const io::Side side = header.side_of(i);
      const auto tokenizer = parse_tokenizer(header.tokenizer_of(side), name);
      require_vocabulary(header, name, *tokenizer, "the tokenizer stored in the shard", side);
      if (kind->ends_with_end_of_line()) field.end_of_line_id = tokenizer->end_of_line_id();
    }
    fields_.push_back(std::move(field));
  }
  uint64_t previous_length = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!kind->allows_length(i % fields_.size(), lengths[i], previous_length))
      io::throw_damaged(name, kind->length_rule(),
                        str(count_of(lengths[i], "number"), " in record ", i / fields_.size() + 1));
    previous_length = lengths[i];
  }
  if (kind->ends_with_empty_sequence() && previous_length > 0)
    io::throw_damaged(name, kind->length_rule(), "no empty sequence at the end");
  if (!lengths.empty()) num_remaining_tokens_ = lengths[0];
  skip_empty_sequences();
}

void SequenceCheck::skip_empty_sequences() {
  while (num_remaining_tokens_ == 0 && sequence_ < lengths_.size())
    if (++sequence_ < lengths_.size()) num_remaining_tokens_ = lengths_[sequence_];
}

void SequenceCheck::add(std::span<const int32_t> tokens) {
  if (fields_.empty()) return;
  while (!tokens.empty() && sequence_ < lengths_.size()) {
    const Field& field = fields_[sequence_ % fields_.size()];
    const size_t n = std::min<uint64_t>(num_remaining_tokens_, tokens.size());
    for (int32_t token : tokens.first(n)) {
      --num_remaining_tokens_;
      if (token >= field.limit ||
          (field.end_of_line_id >= 0 && (token == field.end_of_line_id) != (num_remaining_tokens_ == 0)))
        refuse(field, token);
    }
    tokens = tokens.subspan(n);
    skip_empty_sequences();
  }
}

void SequenceCheck::refuse(const Field& field, int32_t token) const {
  const std::string where = str(name_, ": record ", sequence_ / fields_.size() + 1, ", field ", field.name);
  if (field.end_of_line_id < 0) io::throw_damaged(where, str("numbers below ", field.limit), str("the number ", token));
  io::throw_damaged(
      where,
      str("token ids below ", field.limit, ", and the end-of-line token ", field.end_of_line_id, " only at the end"),
      str("the token id ", token, ", with ", count_of(num_remaining_tokens_, "token"), " after it"));
}

}  // namespace mh::text
