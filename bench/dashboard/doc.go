// Package dashboard checks the Grafana dashboard and the alert rules of module promheed against
// metrics of simulated servers, and draws the picture of the dashboard in the docs.
package dashboard
