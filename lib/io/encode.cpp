#include "io/encode.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace mh::io {

namespace {

struct Encoded {
  std::vector<int32_t> tokens;
  std::vector<size_t> ends;  // of runs, in `tokens`
  uint64_t unknown = 0;
  uint64_t bytes = 0;
};

Encoded encode(const TextBatch& batch, const Tokenizer& tokenizer, Encoder& encoder) {
  if (!tokenizer.takes_any_bytes()) check_text(batch);
  Encoded out;
  out.tokens.reserve(batch.text.size() / 3);
  for (const auto& s : batch.segments) {
    encoder.encode(std::string_view(batch.text).substr(s.begin, s.end - s.begin), out.tokens);
    if (!s.ends_line) continue;
    if (s.has_newline || !tokenizer.takes_any_bytes()) out.tokens.push_back(tokenizer.end_of_line());
    out.ends.push_back(out.tokens.size());
  }
  if (tokenizer.unknown() >= 0)
    out.unknown = static_cast<uint64_t>(std::count(out.tokens.begin(), out.tokens.end(), tokenizer.unknown()));
  out.bytes = batch.source_bytes;
  return out;
}

// Threads that each own an encoder, so that every one keeps its own cache of words.
class Workers {
 public:
  Workers(int count, const Tokenizer& tokenizer) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this, &tokenizer] { work(tokenizer); });
    } catch (const std::system_error& error) {
      stop();
      throw Error(Exit::failed, Problem{"--threads", str(count, " threads"),
                                        str(threads_.size(), ", then: ", error.what()), "ask for fewer"});
    }
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  std::future<Encoded> add(TextBatch batch) {
    std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(batch), {}});
    auto future = tasks_.back().result.get_future();
    ready_.notify_one();
    return future;
  }

 private:
  struct Task {
    TextBatch batch;
    std::promise<Encoded> result;
  };
  void work(const Tokenizer& tokenizer) {
    auto encoder = tokenizer.encoder();
    for (;;) {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task.result.set_value(encode(task.batch, tokenizer, *encoder));
      } catch (...) {
        task.result.set_exception(std::current_exception());
      }
    }
  }
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    ready_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

EncodeSummary encode_lines(TextBatches& text, const Tokenizer& tokenizer, int threads, ShardWriter& writer) {
  auto began = std::chrono::steady_clock::now();
  EncodeSummary summary;
  Progress progress("encode", static_cast<int64_t>(text.expected_bytes()), "bytes");
  auto write = [&](const Encoded& e) {
    size_t begin = 0;
    for (size_t end : e.ends) {
      writer.add_tokens(std::span(e.tokens).subspan(begin, end - begin));
      writer.end_run();
      begin = end;
    }
    writer.add_tokens(std::span(e.tokens).subspan(begin));
    writer.add_text_bytes(e.bytes);
    summary.lines += e.ends.size();
    summary.tokens += e.tokens.size();
    summary.unknown += e.unknown;
    summary.bytes += e.bytes;
    progress.update(static_cast<int64_t>(summary.bytes));
  };
  TextBatch batch;
  if (threads <= 1) {
    auto encoder = tokenizer.encoder();
    while (text.next(batch)) write(encode(batch, tokenizer, *encoder));
  } else {
    std::deque<std::future<Encoded>> waiting;
    Workers workers(threads, tokenizer);
    while (text.next(batch)) {
      waiting.push_back(workers.add(std::move(batch)));
      batch = TextBatch();
      if (waiting.size() < 2 * static_cast<size_t>(threads)) continue;
      write(waiting.front().get());
      waiting.pop_front();
    }
    for (auto& result : waiting) write(result.get());
  }
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return summary;
}

}  // namespace mh::io
