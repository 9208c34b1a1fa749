// Command etcd is etcd as it was released, for a control plane of static pods. The test bed's own control plane has one
// that doesn't sync to disk.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
