// Companions: parts of a Hugging Face folder besides the model and the vocabulary: settings of text generation, the
// chat template, and special tokens such as the padding token. mh-convert stores them in the checkpoint
// (io::kHuggingFaceKey), so that a conversion back writes them again. Of these parts, multihead uses only the tokens
// that end a generated text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/json_config.h"

namespace mh::huggingface {

// Maximum size in bytes of a companion file, and of all companions together.
constexpr size_t kMaxCompanionBytes = size_t{1} << 20;

// Returns the companions as a JSON object by file name; "" if the folder has none. The value of a file is its whole
// content, a text for chat_template.jinja and else an object; the value of config.json and of tokenizer_config.json has
// only the keys that multihead does not write. Warns about files and contents that exceed kMaxCompanionBytes, and
// leaves them out. Throws Error(input) for a file that is not JSON or, for a template, not UTF-8. `config`: config.json
// of the folder.
std::string read_companions(const std::string& folder, const io::JsonConfig& config);

// Adds the companions to a new folder: to `config`, the contents of config.json, and to `files`, the other files by
// name. Does not replace a value that is not null. `companions`: result of read_companions(). `where`: place of
// `companions` for messages. Throws Error(input) for a text that read_companions() cannot return.
void add_companions(const std::string& companions, const std::string& where, io::Json& config,
                    std::map<std::string, std::string>& files);

// Returns the tokens that end a generated text: `eos_token_id`, an id or a list of ids, of generation_config.json or,
// without it there, the list of config.json. Empty if `companions` has neither. `companions`, `where`: as above. Throws
// Error(input) for another value.
std::vector<int32_t> end_token_ids(const std::string& companions, const std::string& where);

}  // namespace mh::huggingface
