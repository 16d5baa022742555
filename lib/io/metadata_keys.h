// The meaning of each metadata key of a checkpoint, for `mh-train --list metadata` and mh-checkpoint(5).
#pragma once

#include <array>

#include "io/checkpoint.h"

namespace mh::io {

struct MetadataKey {
  const char* name;
  const char* meaning;
};

inline constexpr std::array kMetadataKeys{
    MetadataKey{kFormatKey, "Format version: 1."},
    MetadataKey{kConfigKey, "Resolved configuration, TOML."},
    MetadataKey{kTokenizerKey, "Vocabulary file, see mh-vocab(5), in base64."},
    MetadataKey{kFingerprintKey, "Fingerprint of the vocabulary in multihead.tokenizer."},
    MetadataKey{kSourceTokenizerKey,
                "Vocabulary file of the encoder, in base64, if encoder and decoder have different vocabularies."},
    MetadataKey{kSourceFingerprintKey, "Fingerprint of the vocabulary in multihead.source_tokenizer."},
    MetadataKey{kChecksumsKey, "Checksums of the tensors and of the header, a JSON object."},
    MetadataKey{kOriginKey,
                "How mh-convert(1) made the file: a JSON array of the steps in order, {\"average\": [file names]}, "
                "{\"fold\": [layer names]}, {\"head_size\": size} or {\"huggingface\": folder, \"model_type\": "
                "architecture}. Only in files of "
                "mh-convert, and in the files of a training run that started from such a file."},
    MetadataKey{
        kHuggingFaceKey,
        "Parts of the Hugging Face folder that a conversion back writes, such as generation_config.json and the "
        "chat template: a JSON object by file name. Only where multihead.origin may be."},
    MetadataKey{kTrainingKey, "State of the training run, a JSON object. Only in a training state."},
};

}  // namespace mh::io
