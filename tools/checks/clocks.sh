#!/usr/bin/env bash
# Time and randomness arrive through constructors (style rule 11): no wall clock outside the log, no seed from the machine,
# and no test that waits on real time.
source "$(dirname "$0")/lib.sh"
mapfile -t code < <(project_files '*.h' '*.cc' | grep -E '^(src|tests)/' | grep -v '^src/tenure/base/log\.cc$')
forbid_in_code 'system_clock|absl::Now\(|GetCurrentTimeNanos|gettimeofday|CLOCK_REALTIME|std::time\(|[^_a-zA-Z:.>]time\((NULL|nullptr|0)\)' \
  'wall time; take a tenure::Clock' "${code[@]}"
forbid_in_code 'std::random_device|std::mt19937|std::s?rand\(|std::(uniform|normal|exponential)_[a-z]*distribution|absl::BitGen' \
  'take a tenure::Random with a seed' "${code[@]}"
mapfile -t tests < <(printf '%s\n' "${code[@]}" | grep -E '_(test|testing|fuzz)\.(cc|h)$|^tests/')
forbid_in_code 'sleep_for|sleep_until|usleep|nanosleep|absl::SleepFor|[^_a-zA-Z]sleep\(' 'a test never sleeps; use ManualClock or an event' \
  "${tests[@]}"
finish
