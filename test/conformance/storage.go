package conformance

import (
	_ "embed"
	"time"
)

//go:embed storage/limits.txt
var storageLimits string

//go:embed storage/passes.txt
var storagePasses string

// Storage is the part of Kubernetes' end-to-end suite that judges a CSI driver (test/e2e/storage/external), with the
// driver of package csidriver, which is sound by csi-sanity: what fails here is the node agent's.
func Storage() Suite {
	return Suite{
		Target: "conformance-storage", labels: "!/^Feature:/ && !Disruptive", scope: storageScope, never: storageNever,
		brief: storageBrief, passes: storagePasses, limits: storageLimits,
		quickLimit: 15 * time.Minute, fullLimit: 2 * time.Hour,
	}
}

var storageScope = []string{`External Storage \[Driver: `}

// storageNever are specs that would only find that they can't run: limits.txt says why.
var storageNever = []string{
	`\((ext3|xfs|ntfs)\)`, `Pre-provisioned`, `Inline-volume`, // patterns
	`snapshot`, `Snapshot`, `volume-modify`, `capacity`, `topology`, `perf`, `volume data source`,
	`on different node`, `pvc data source`, `its clone`,
}

// storageBrief has a few specs of each kind that passes.txt has.
var storageBrief = []string{
	`External Storage .*Dynamic PV \(default fs\)\] volumes should store data`,
	`External Storage .*Dynamic PV \(block volmode\)\] volumes should store data`,
	`External Storage .*CSI Ephemeral-volume .* should create read/write inline ephemeral volume`,
	`External Storage .*Generic Ephemeral-volume \(default fs\) \(late-binding\)\] ephemeral should create read/write`,
	`External Storage .*Generic Ephemeral-volume \(block volmode\) .* should support expansion of pvcs`,
}
