// Package resource tests what pods have for themselves of a node: devices of plugins, and CPUs.
package resource
