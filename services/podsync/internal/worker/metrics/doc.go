// Package metrics counts and times what podsync does, under the names, labels and buckets of the kubelet's metrics
// (pkg/kubelet/metrics of Kubernetes 1.36).
//
// Each metric is recorded at one place: pods that come, wait and go by the dispatcher, rounds and statuses by the
// worker, actions by the executor, pulls by the puller, cgroup operations by the cgroup manager. Where the kubelet
// measures something that podsync doesn't do, the nearest counterpart is measured, and a comment says so.
package metrics
