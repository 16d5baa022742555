// Base class of tokenizers with a list of pieces: a token is the index of its piece. Entry 0 is the end-of-line
// piece, entry 1 the unknown piece.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

class PieceTokenizer : public Tokenizer {
 public:
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line_id() const final { return 0; }
  int32_t unknown_id() const final { return 1; }
  std::string piece(int32_t token) const override { return text_of(token); }
  std::string serialize() const override { return serialize_vocabulary(type(), pieces_); }

  const WordMap<int32_t>& ids() const { return ids_; }
  // Returns the token of `piece`, or the unknown token.
  int32_t id_of(const WordKey& piece) const {
    const int32_t* id = ids_.find(piece);
    return id != nullptr ? *id : unknown_id();
  }

 protected:
  explicit PieceTokenizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    ids_.reserve(pieces_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) ids_[pieces_[i].text] = static_cast<int32_t>(i);
  }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::string& text_of(int32_t token) const { return pieces_.at(static_cast<size_t>(token)).text; }

 private:
  std::vector<Piece> pieces_;
  WordMap<int32_t> ids_;
};

}  // namespace mh::text
