// Package promheed exports metrics of package heed to Prometheus.
//
//	tracker := &quota.Tracker{}
//	collector := promheed.New(promheed.Config{Quota: tracker})
//	prometheus.MustRegister(collector)
//	client := heed.NewClient(&heed.Transport{Quota: tracker, Trace: collector.Trace()})
//
// # Metrics
//
// The metrics are those of package otelheed, with the names that the Prometheus exporter of
// OpenTelemetry gives them. All durations are in seconds.
//
//	heed_client_call_duration_seconds           histogram, calls with all waits and attempts
//	heed_client_call_retries                    histogram, retries of calls that were retried
//	heed_client_call_retry_delay_seconds        histogram, time between attempts of such calls
//	heed_client_request_time_in_queue_seconds   histogram, waits by limit, reason and result
//	heed_client_queued_requests                 gauge, requests that wait now
//	heed_client_attempts_total                  attempts that got a response or failed
//	heed_client_throttled_total                 responses that reject a request because of a limit
//	heed_client_retries_rejected_total           failed attempts that are not retried, by reason
//	heed_client_quota_limit                     gauges for the limits of servers:
//	heed_client_quota_remaining                   by server_address, heed_quota_name, heed_quota_unit, heed_quota_known
//	heed_client_quota_utilization_ratio
//	heed_client_quota_reset_seconds
//	heed_client_quota_hold_seconds              gauge, time until a server may be sent requests again
//	heed_client_quota_rate_per_second           gauge, learned rate in requests per second
//	heed_client_quota_concurrency               gauge, estimated maximum number of requests in flight
//	heed_client_retry_budget_remaining          gauge, retries that the budget permits now
//	heed_server_requests_total                  decisions of a throttlehttp.Middleware or a rules file
//	heed_server_request_time_in_queue_seconds   histogram, waits in the Queue of a Middleware
//	heed_server_near_limit_total                granted requests that left less than a fifth of a limit
//	heed_store_operation_duration_seconds       histogram, calls to Redis
//	heed_store_degraded_total                   decisions without Redis
//
// No label has a value from a key, a credential, a path or a query. At most Config.MaxServers
// servers, those that were used recently, have labels of their own, and all that are described by
// gauges for quotas. Other labels have at most 100 values. Further values are "_OTHER". A request
// that its caller canceled is no error: its error_type is empty.
//
// The folder dashboard of this module has a Grafana dashboard and alert rules.
package promheed
