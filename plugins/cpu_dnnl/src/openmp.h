// The team in place of OpenMP's, for oneDNN.
#pragma once

namespace mgx {

int asked_team_size(); // of the calling thread's next region; 0: all threads of the process
void ask_team_size(int threads);
void serve_onednn(); // have oneDNN use our team

} // namespace mgx
