// Package checksum has the sum that the kubelet writes into its state files: FNV-1a over a dump of the content. Names
// of Go types are part of the dump. So this package, those beside it and their types have the kubelet's names, also
// where they read badly.
package checksum

import (
	"hash/fnv"
	"strings"

	"k8s.io/utils/dump"
)

// Checksum is a state file's sum.
type Checksum uint64

// Of is the sum of a content.
func Of(content any) Checksum { return sum(dump.ForHash(content)) }

// OfNamed is the sum of a content as if its type had another name.
func OfNamed(content any, name, other string) Checksum {
	return sum(strings.Replace(dump.ForHash(content), name, other, 1))
}

func sum(text string) Checksum {
	h := fnv.New32a()
	h.Write([]byte(text))
	return Checksum(h.Sum32())
}
