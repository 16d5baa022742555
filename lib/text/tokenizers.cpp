#include "text/tokenizers.h"

#include <stdexcept>

#include "base/error.h"
#include "base/text.h"
#include "io/shard_format.h"

namespace mh::text {

namespace {

// Maximum total size of the serialised tokenizers in bytes. In base64, with four characters for three bytes, the
// tokenizers may fill nine tenths of a checkpoint's header; the remaining tenth describes tensors.
constexpr uint64_t kMaxTokenizerBytes = io::kMaxHeaderBytes / 10 * 9 / 4 * 3;

}  // namespace

bool Tokenizers::have_same_entries() const {
  if (source == nullptr || source->size() != target->size()) return false;
  for (int64_t token = 0; token < target->size(); ++token)
    if (source->piece(static_cast<int32_t>(token)) != target->piece(static_cast<int32_t>(token))) return false;
  return true;
}

Tokenizers tokenizers_of(const io::ShardHeader& header, const std::string& name) {
  if (const uint64_t bytes = header.tokenizer.size() + header.source_tokenizer.size(); bytes > kMaxTokenizerBytes)
    refuse_input(
        name, str("vocabularies of at most ", kMaxTokenizerBytes, " bytes, which the header of a checkpoint can hold"),
        str(bytes, " bytes"), "use a smaller vocabulary");
  Tokenizers result{parse_tokenizer(header.tokenizer, name), nullptr};
  if (!header.shares_vocabulary()) result.source = parse_tokenizer(header.source_tokenizer, name);
  require_vocabularies(header, name, result, "the tokenizer stored in the shard");
  return result;
}

namespace {

std::unique_ptr<Tokenizer> tokenizer_at(const io::Checkpoint& checkpoint, const char* key,
                                        const char* fingerprint_key) {
  std::string text;
  try {
    text = io::from_base64(checkpoint.metadata_entry(key));
  } catch (const std::invalid_argument&) {
    refuse_input(checkpoint.name() + ": " + key, "base64", "other characters", "use an unmodified checkpoint");
  }
  auto tokenizer = parse_tokenizer(text, checkpoint.name() + ": tokenizer");
  const std::string& fingerprint = checkpoint.metadata_entry(fingerprint_key);
  if (fingerprint != tokenizer->fingerprint())
    refuse_input(checkpoint.name() + ": " + fingerprint_key,
                 "the fingerprint of the stored tokenizer, " + tokenizer->fingerprint(), fingerprint,
                 "the metadata of two checkpoints is mixed; use an unmodified checkpoint");
  return tokenizer;
}

}  // namespace

Tokenizers tokenizers_of(const io::Checkpoint& checkpoint) {
  const std::string& format = checkpoint.metadata_entry(io::kFormatKey);
  if (format != "1")
    refuse_input(checkpoint.name(), "a checkpoint of format 1", "format " + format, "use a newer version of multihead");
  Tokenizers result{tokenizer_at(checkpoint, io::kTokenizerKey, io::kFingerprintKey), nullptr};
  if (checkpoint.metadata().count(io::kSourceTokenizerKey) > 0)
    result.source = tokenizer_at(checkpoint, io::kSourceTokenizerKey, io::kSourceFingerprintKey);
  return result;
}

io::ShardHeader header_of(const Tokenizer& tokenizer) {
  io::ShardHeader header;
  header.vocabulary_size = tokenizer.size();
  header.fingerprint = tokenizer.fingerprint();
  header.tokenizer = tokenizer.serialize();
  return header;
}

io::Metadata metadata_of(const Tokenizers& tokenizers) {
  io::Metadata entries{{io::kTokenizerKey, io::to_base64(tokenizers.target->serialize())},
                       {io::kFingerprintKey, tokenizers.target->fingerprint()}};
  if (tokenizers.source != nullptr)
    entries.insert({{io::kSourceTokenizerKey, io::to_base64(tokenizers.source->serialize())},
                    {io::kSourceFingerprintKey, tokenizers.source->fingerprint()}});
  return entries;
}

void require_vocabularies(const io::ShardHeader& header, const std::string& name, const Tokenizers& tokenizers,
                          const std::string& owner) {
  require_vocabulary(header, name, *tokenizers.target, owner);
  if (header.side_of(0) == io::Side::source || tokenizers.source != nullptr)
    require_vocabulary(header, name, tokenizers.source_or_target(), owner, io::Side::source);
}

void require_vocabulary(const io::ShardHeader& header, const std::string& name, const Tokenizer& tokenizer,
                        const std::string& owner, io::Side side) {
  io::require_vocabulary(header, name, tokenizer.fingerprint(), owner, side);
  if (header.vocabulary_size_of(side) != tokenizer.size())
    io::throw_damaged(
        str(name, ": header"),
        str("a vocabulary of ", count_of(tokenizer.size(), "entry"), ", the size of the stored tokenizer"),
        count_of(header.vocabulary_size_of(side), "entry"));
}

}  // namespace mh::text
