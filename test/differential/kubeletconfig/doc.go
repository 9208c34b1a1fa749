// Package kubeletconfig compares kubelot's verdict on KubeletConfiguration files with that of Kubernetes' own code: for
// files written by hand, and for each field with values that are likely to be wrong.
package kubeletconfig
