// Package manifest turns the bytes of a static pod's manifest into the Pod that the kubelet would run: the
// API server, which fills in defaults and validates everything else, never sees these pods first.
//
// # Reads and writes
//
// Nothing: bytes in, pods out.
//
// # Guarantees
//
//   - Name, UID and annotations are those of a kubelet 1.36 for the same bytes at the same place, bit for
//     bit, so that a node can be taken over from a kubelet with its static pods running on, and handed back.
//   - No input makes it panic or run on.
//   - Errors carry the field path and the offending value.
//   - A manifest that the kubelet runs and that is merely sloppy (unknown fields, doubled keys, further YAML
//     documents) runs here too, and the sloppiness is a warning.
//
// # Not validated
//
// Two thousand random manifests that Kubernetes refuses are refused here too (test/differential/staticpod). What only
// the runtime or another daemon can judge fails there with its own message: node affinity expressions, pod-level
// resources against the containers' sums, divisors, SELinux options, AppArmor profile names, Windows options, topology
// spread, scheduling gates, and the in-tree volume types that no kubelet mounts any more. In one thing it is stricter:
// metadata.uid must be plain, since it names cgroups, directories and bus subjects.
package manifest
