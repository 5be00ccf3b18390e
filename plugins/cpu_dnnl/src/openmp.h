// Runs oneDNN's OpenMP regions on the thread team of this module.
#pragma once

namespace mgx {

int asked_team_size(); // team size of the calling thread's next regions; 0: all threads of the process
void ask_team_size(int threads);
void serve_onednn(); // redirects oneDNN's calls of the OpenMP runtime to the team; the first call does the work

} // namespace mgx
