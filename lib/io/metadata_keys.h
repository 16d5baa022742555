// The meaning of each text entry of a checkpoint's header, for `mh-train --list metadata` and mh-checkpoint(5).
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
    MetadataKey{kFingerprintKey, "Fingerprint of that vocabulary."},
    MetadataKey{kSourceTokenizerKey, "Vocabulary file of the encoder, in base64, if it has a vocabulary of its own."},
    MetadataKey{kSourceFingerprintKey, "Fingerprint of the encoder's vocabulary, if it has one of its own."},
    MetadataKey{kSumsKey, "Checksums, JSON: see below."},
    MetadataKey{kOriginKey,
                "How mh-convert(1) made the file: a JSON array of the steps in order, {\"average\": [file "
                "names]} or {\"fold\": [layer names]}. Only in its output."},
    MetadataKey{kTrainingKey, "State of the training run, JSON: see below. Only in a training state."},
};

}  // namespace mh::io
