// Clusters: blocks that run together and write to each other's shared memory (NVIDIA from Hopper on).  The emulated device runs the
// blocks of a cluster one after the other, block 0 last, each until it has ended or waits for the others.
//   KERNEL(256) CLUSTER(8) name(...)    clusters of 8 blocks that are adjacent along x
//   cluster_arrive(), cluster_wait()    the halves of a barrier of all threads of a cluster; before the first, blocks may not have
//                                       started, and their shared memory must not be accessed
//   cluster_store(p, rank, v)           stores v in the shared memory of block `rank`, at the address that p has in this block
//   cluster_store4(p, rank, v)          stores four floats, to an address aligned to 16 bytes
#pragma once
#if GPU_CUDA && __CUDA_ARCH__ >= 900
#define CLUSTER(n) __cluster_dims__(n, 1, 1)
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
DEV void cluster_store(float* p, u32 rank, float v) {
  asm volatile("{.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.f32 [at], %2;\n}"
               ::"r"((u32)__cvta_generic_to_shared(p)), "r"(rank), "f"(v) : "memory");
}
DEV void cluster_store4(float* p, u32 rank, const float* v) {
  asm volatile("{.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.v4.f32 [at], {%2,%3,%4,%5};\n}"
               ::"r"((u32)__cvta_generic_to_shared(p)), "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
#elif GPU_HOST
#define CLUSTER(n)
DEV void cluster_arrive() {}
DEV void cluster_wait() { emulator->cluster_wait(); }
DEV void cluster_store(float* p, u32 rank, float v) { emulator->cluster_store(p, rank, &v, 4); }
DEV void cluster_store4(float* p, u32 rank, const float* v) {
  if ((u64)p % 16) emulator->misaligned(p, 16);
  emulator->cluster_store(p, rank, v, 16);
}
#endif
