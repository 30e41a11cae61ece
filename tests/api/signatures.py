"""The order of the arguments of the functions that option structs are named after."""

import pathlib
import re

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include/tandem"

# "header struct: the original's arguments in order, by our names where they differ" (Keras 3.15, TensorFlow 2.21,
# PyTorch 2.15, Horovod 0.28). Arguments that the struct does not have are left out where they say nothing.
TABLE = """
amp.h AutocastOptions: device_type dtype enabled cache_enabled
amp.h GradScalerOptions: init_scale growth_factor backoff_factor growth_interval enabled
autodiff.h GradientTapeOptions: persistent watch_accessed_variables
autograd.h GradOptions: grad_outputs retain_graph create_graph allow_unused
callbacks.h ModelCheckpointOptions: monitor verbose save_best_only save_weights_only mode save_freq
callbacks.h EarlyStoppingOptions: monitor min_delta patience verbose mode baseline restore_best_weights start_from_epoch
callbacks.h ReduceLROnPlateauOptions: monitor factor patience verbose mode min_delta cooldown min_lr
callbacks.h BackupAndRestoreOptions: save_freq delete_checkpoint
callbacks.h LambdaOptions: on_epoch_begin on_epoch_end on_train_begin on_train_end on_train_batch_begin on_train_batch_end
comm.h InitOptions: backend init_method timeout world_size rank
comm.h ReduceOptions: op group
csv.h CsvOptions: sep header names usecols dtype true_values false_values skipinitialspace skiprows nrows na_values keep_default_na skip_blank_lines thousands decimal quotechar doublequote escapechar comment
data.h GeneratorOptions: output_types output_shapes output_signature
data.h PaddedBatchOptions: padded_shapes padding_values drop_remainder
data.h BucketOptions: padded_shapes padding_values pad_to_bucket_boundary no_padding drop_remainder
data.h WindowOptions: shift stride drop_remainder
data.h InterleaveOptions: cycle_length block_length
data.h SampleOptions: weights seed stop_on_empty_dataset
data_loader.h DataLoaderArguments: batch_size shuffle sampler num_workers drop_last timeout prefetch_factor persistent_workers
data_loader.h DistributedSamplerOptions: num_replicas rank shuffle seed drop_last
ddp.h DistributedDataParallelOptions: broadcast_buffers process_group bucket_cap_mb find_unused_parameters
hvd.h AllreduceOptions: name compression op prescale_factor postscale_factor process_set
hvd.h ReducescatterOptions: name op process_set prescale_factor postscale_factor
layers.h DenseOptions: activation use_bias kernel_initializer bias_initializer dtype name
layers.h Conv2DOptions: strides padding dilation_rate groups activation use_bias kernel_initializer bias_initializer
layers.h DepthwiseConv2DOptions: strides padding depth_multiplier dilation_rate activation use_bias
layers.h Pooling2DOptions: pool_size strides padding
layers.h ReLUOptions: max_value negative_slope threshold
layers.h BatchNormalizationOptions: momentum epsilon center scale synchronized
layers.h LayerNormalizationOptions: epsilon center scale
layers.h MultiHeadAttentionOptions: value_dim dropout use_bias kernel_initializer bias_initializer
activation_modules.h PReLUArguments: num_parameters init
image_modules.h Conv2dArguments: stride padding dilation groups bias padding_mode
image_modules.h MaxPool2dArguments: stride padding dilation return_indices ceil_mode
image_modules.h AvgPool2dArguments: stride padding ceil_mode count_include_pad divisor_override
convolution_modules.h Conv1dArguments: stride padding dilation groups bias padding_mode
convolution_modules.h Conv3dArguments: stride padding dilation groups bias padding_mode
convolution_modules.h ConvTranspose1dArguments: stride padding output_padding groups bias dilation padding_mode
convolution_modules.h ConvTranspose2dArguments: stride padding output_padding groups bias dilation padding_mode
convolution_modules.h ConvTranspose3dArguments: stride padding output_padding groups bias dilation padding_mode
convolution_modules.h MaxPool1dArguments: stride padding dilation return_indices ceil_mode
convolution_modules.h AvgPool1dArguments: stride padding ceil_mode count_include_pad
convolution_modules.h MaxPool3dArguments: stride padding dilation return_indices ceil_mode
convolution_modules.h AvgPool3dArguments: stride padding ceil_mode count_include_pad divisor_override
normalization_modules.h GroupNormOptions: eps affine
normalization_modules.h InstanceNormOptions: eps momentum affine track_running_stats
normalization_modules.h RMSNormOptions: eps elementwise_affine
normalization_modules.h LocalResponseNormOptions: alpha beta k
resampling_modules.h InterpolateOptions: size scale_factor mode align_corners recompute_scale_factor antialias
resampling_modules.h FoldOptions: dilation padding stride
resampling_modules.h LpPool1dArguments: stride ceil_mode
resampling_modules.h LpPool2dArguments: stride ceil_mode
resampling_modules.h LpPool3dArguments: stride ceil_mode
unpooling_modules.h MaxUnpool1dArguments: stride padding
unpooling_modules.h MaxUnpool2dArguments: stride padding
unpooling_modules.h MaxUnpool3dArguments: stride padding
sampling_modules.h GridSampleOptions: mode padding_mode align_corners
sampling_modules.h EmbeddingBagOptions: max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx
sampling_modules.h EmbeddingBagArguments: max_norm norm_type scale_grad_by_freq mode sparse include_last_offset padding_idx
volumes.h Pooling3DOptions: pool_size strides padding
convolution_layers.h Conv1DOptions: strides padding dilation_rate groups activation use_bias kernel_initializer bias_initializer kernel_regularizer bias_regularizer
convolution_layers.h Conv2DTransposeOptions: strides padding output_padding activation use_bias kernel_initializer bias_initializer kernel_regularizer bias_regularizer
convolution_layers.h SeparableConv2DOptions: strides padding dilation_rate depth_multiplier activation use_bias depthwise_initializer pointwise_initializer bias_initializer depthwise_regularizer pointwise_regularizer bias_regularizer
convolution_layers.h Pooling1DOptions: strides padding
augmentation.h RandomTransformOptions: fill_mode interpolation seed fill_value
augmentation.h RandomZoomOptions: width_factor fill_mode interpolation seed fill_value
augmentation.h RandomResizedCropOptions: scale ratio interpolation
augmentation.h ResizingOptions: interpolation crop_to_aspect_ratio pad_to_aspect_ratio fill_value
augmentation.h RandomColorOptions: value_range seed
augmentation.h ColorJitterOptions: brightness contrast saturation hue
augmentation.h RandomErasingOptions: scale fill_value value_range seed
image_files.h ImageDatasetOptions: labels label_mode class_names color_mode batch_size image_size shuffle seed validation_split subset interpolation crop_to_aspect_ratio pad_to_aspect_ratio
image_files.h ImageFolderOptions: transform target_transform allow_empty
preprocessing.h NormalizationOptions: axis mean variance invert
preprocessing.h DiscretizationOptions: bin_boundaries num_bins epsilon output_mode dtype name
preprocessing.h IntegerLookupOptions: max_tokens num_oov_indices mask_token oov_token vocabulary idf_weights invert output_mode pad_to_max_tokens name
text_preprocessing.h StringLookupOptions: max_tokens num_oov_indices mask_token oov_token vocabulary idf_weights invert output_mode pad_to_max_tokens
text_preprocessing.h TextVectorizationOptions: max_tokens standardize split ngrams output_mode output_sequence_length pad_to_max_tokens vocabulary idf_weights
text_preprocessing.h HashingOptions: mask_value salt output_mode
normalization_layers.h GroupNormalizationOptions: epsilon center scale
normalization_layers.h PReLUOptions: alpha_initializer alpha_regularizer shared_axes
recurrent_modules.h RecurrentArguments: num_layers nonlinearity bias batch_first dropout bidirectional
recurrent.h LSTMOptions: activation recurrent_activation use_bias kernel_initializer recurrent_initializer bias_initializer unit_forget_bias kernel_regularizer recurrent_regularizer bias_regularizer dropout recurrent_dropout return_sequences go_backwards
recurrent.h GRUOptions: activation recurrent_activation use_bias kernel_initializer recurrent_initializer bias_initializer kernel_regularizer recurrent_regularizer bias_regularizer dropout recurrent_dropout return_sequences go_backwards reset_after
recurrent.h SimpleRNNOptions: activation use_bias kernel_initializer recurrent_initializer bias_initializer kernel_regularizer recurrent_regularizer bias_regularizer dropout recurrent_dropout return_sequences go_backwards
recurrent.h BidirectionalOptions: merge_mode backward_layer
losses.h CrossentropyOptions: from_logits label_smoothing ignore_class reduction
losses.h TverskyOptions: alpha beta reduction name
losses.h BinaryFocalOptions: apply_class_balancing alpha gamma from_logits label_smoothing reduction name
losses.h CategoricalFocalOptions: alpha gamma from_logits label_smoothing reduction name
functional_losses.h DistanceOptions: p eps keepdim
functional_losses.h GaussianNllOptions: full eps reduction
functional_losses.h PoissonNllOptions: log_input full eps reduction
functional_losses.h MarginOptions: margin reduction
functional_losses.h CtcOptions: blank reduction zero_infinity
functional_losses.h HingeEmbeddingOptions: margin reduction
functional_losses.h TripletMarginOptions: margin p eps swap reduction
functional_losses.h MultiMarginOptions: p margin weight reduction
functional_losses.h MultiLabelSoftMarginOptions: weight reduction
model_options.h CompileOptions: optimizer loss loss_weights metrics weighted_metrics run_eagerly steps_per_execution
model_options.h EvaluateOptions: batch_size verbose sample_weight steps
nn.h AverageLossOptions: sample_weight global_batch_size
lr_scheduler.h StepLROptions: step_size gamma
lr_scheduler.h MultiStepLROptions: milestones gamma
lr_scheduler.h CosineAnnealingLROptions: T_max eta_min
lr_scheduler.h LinearLROptions: start_factor end_factor total_iters
lr_scheduler.h OneCycleLROptions: max_lr total_steps epochs steps_per_epoch pct_start anneal_strategy cycle_momentum div_factor final_div_factor three_phase
lr_scheduler.h ReduceLROnPlateauOptions: mode factor patience threshold cooldown min_lr
optim.h SGDGroup: params lr momentum dampening weight_decay nesterov
optim.h AdamGroup: params lr betas eps weight_decay amsgrad
optim.h AdamWGroup: params lr betas eps weight_decay amsgrad
optimizers.h SGDOptions: learning_rate momentum nesterov weight_decay clipnorm clipvalue global_clipnorm
optimizers.h AdamOptions: learning_rate beta_1 beta_2 epsilon amsgrad weight_decay clipnorm clipvalue global_clipnorm
optimizers.h AdamWOptions: learning_rate weight_decay beta_1 beta_2 epsilon amsgrad clipnorm clipvalue global_clipnorm
optimizers.h RMSpropOptions: learning_rate rho momentum epsilon centered weight_decay clipnorm clipvalue global_clipnorm
optimizers.h AdagradOptions: learning_rate initial_accumulator_value epsilon weight_decay clipnorm clipvalue
optimizers.h LAMBOptions: learning_rate beta_1 beta_2 epsilon weight_decay clipnorm clipvalue global_clipnorm
optimizers.h DecayOptions: initial_learning_rate decay_steps decay_rate staircase
optimizers.h PolynomialDecayOptions: initial_learning_rate decay_steps end_learning_rate power cycle
optimizers.h CosineDecayOptions: initial_learning_rate decay_steps alpha warmup_target warmup_steps
optimizers.h CosineOptions: alpha warmup_target warmup_steps
random.h NormalOptions: mean stddev dtype seed name
random.h UniformOptions: minval maxval dtype seed name
method_options.h BackwardOptions: retain_graph create_graph
variable.h VariableOptions: trainable name dtype synchronization aggregation
"""


def members(header, struct):
    """The members of a struct, in their order."""
    text = re.sub(r"//[^\n]*", "", (INCLUDE / header).read_text())
    body = re.search(rf"^struct {struct}(?: : \w+)? \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert body, f"{header} has no struct {struct}"
    found = []
    for statement in re.findall(r"^  (?!using|friend|struct|enum|static|template|return)([^;]*);", body[1], re.MULTILINE):
        plain = re.sub(r"<[^;]*>", "", re.sub(r"\{[^;]*?\}|=[^;,]*", "", statement))
        if "(" in plain:
            continue
        first, *others = plain.split(",")
        found += [re.findall(r"\w+", name)[-1] for name in [first, *others] if re.findall(r"\w+", name)]
    return found


def signatures():
    """(header, struct, arguments of the original that the struct has, in the original's order)."""
    for line in TABLE.strip().splitlines():
        place, arguments = line.split(": ")
        header, struct = place.split()
        ours = members(header, struct)
        yield header, struct, [name for name in arguments.split() if name in ours]
